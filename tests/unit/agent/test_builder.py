from __future__ import annotations

import sys
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from vystak_turns_agent.app import create_app
from vystak_turns_agent.builder import (
    GraphRefusedError,
    build_graph,
    load_builder,
    with_checkpointer,
)


def line() -> StateGraph:
    graph = StateGraph(MessagesState)
    graph.add_node("node", lambda state: {})
    graph.add_edge(START, "node")
    return graph


def compiling(checkpointer: Any) -> Any:
    return line().compile(checkpointer=checkpointer)


@pytest.mark.parametrize("source", [line(), line, compiling, line().compile()])
def test_a_graph_is_taken_in_each_form(source: Any) -> None:
    saver = InMemorySaver()
    graph = build_graph(source)
    assert with_checkpointer(graph, saver).checkpointer is saver
    assert graph.checkpointer is not saver


@pytest.mark.parametrize("source", [7, "graph", lambda: 7, None])
def test_what_is_no_graph_is_refused(source: Any) -> None:
    with pytest.raises(GraphRefusedError, match="StateGraph"):
        build_graph(source)


@pytest.mark.parametrize(
    "graph", [line().compile(interrupt_before=["node"]), line().compile(interrupt_after=["node"])]
)
def test_static_breakpoints_are_refused(graph: Any) -> None:
    with pytest.raises(GraphRefusedError, match="static breakpoints"):
        create_app(graph, name="x")


def test_static_breakpoints_of_a_nested_graph_are_refused() -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("inner", line().compile(interrupt_before=["node"]))
    graph.add_edge(START, "inner")
    with pytest.raises(GraphRefusedError, match="static breakpoints"):
        build_graph(graph)


def test_a_state_without_messages_is_refused() -> None:
    class Other(TypedDict):
        text: str

    graph = StateGraph(Other)
    graph.add_node("node", lambda state: {})
    graph.add_edge(START, "node")
    with pytest.raises(GraphRefusedError, match="messages"):
        build_graph(graph)


def test_a_builder_is_imported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("made_for_this_test")
    module.build = line  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_for_this_test", module)
    assert load_builder("made_for_this_test:build") is line


@pytest.mark.parametrize("target", ["nothing", "no_such_module:x", "json:no_such_name", ":x", "x:"])
def test_a_builder_that_cannot_be_found_is_refused_with_words(target: str) -> None:
    with pytest.raises(GraphRefusedError):
        load_builder(target)
