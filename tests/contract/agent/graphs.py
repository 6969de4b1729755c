"""Each graph of the suite twice: for LangGraph, and as a script of the fake agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from tests.integration.agent.graphs import Gates, Speaker, asking, one_node, plain_tools
from tests.simulation.scripts import Script, Task


def _tool(gates: Gates, name: str, *questions: str) -> Any:
    """A node that asks its questions and returns a tool message."""

    async def node(state: MessagesState) -> dict[str, Any]:
        await gates.step(name)
        for question in questions:
            interrupt(question)
        return {"messages": [ToolMessage(f"from {name}", tool_call_id=f"call-{name}")]}

    node.__name__ = name
    return node


def _two_tools(gates: Gates, first: Any, second: Any) -> StateGraph:
    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await Speaker(text="both", calls=("a", "b")).ainvoke("")]}

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await Speaker(text="both done").ainvoke("")]}

    graph = StateGraph(MessagesState)
    for name, node in {"think": think, "a": first, "b": second, "answer": answer}.items():
        graph.add_node(name, node)
    graph.add_edge(START, "think")
    graph.add_edge("think", "a")
    graph.add_edge("think", "b")
    graph.add_edge(["a", "b"], "answer")
    graph.add_edge("answer", END)
    return graph


def _parallel(gates: Gates) -> StateGraph:
    return _two_tools(gates, _tool(gates, "a"), _tool(gates, "b"))


def _both_ask(gates: Gates) -> StateGraph:
    return _two_tools(gates, _tool(gates, "a", "a?"), _tool(gates, "b", "b?"))


def _one_asks(gates: Gates) -> StateGraph:
    return _two_tools(gates, _tool(gates, "a", "a?"), _tool(gates, "b"))


def _two_questions(gates: Gates) -> StateGraph:
    return one_node("ask", _tool(gates, "ask", "first?", "second?"))


def _nested(gates: Gates) -> StateGraph:
    async def inner_one(state: MessagesState) -> dict[str, Any]:
        await gates.step("one")
        return {"messages": [await Speaker(text="inside").ainvoke("")]}

    async def inner_two(state: MessagesState) -> dict[str, Any]:
        await gates.step("two")
        return {}

    inner = one_node("inner_one", inner_one, inner_two).compile()
    graph = StateGraph(MessagesState)
    graph.add_node("outer", inner)
    graph.add_edge(START, "outer")
    return graph


def _private(gates: Gates) -> StateGraph:
    async def route(state: MessagesState) -> dict[str, Any]:
        await Speaker(text="secret thoughts").ainvoke("")
        return {"messages": [await Speaker(text="hello").ainvoke("")]}

    return one_node("route", route)


def _replaced(gates: Gates) -> StateGraph:
    async def say(state: MessagesState) -> dict[str, Any]:
        message = await Speaker(text="first words").ainvoke("")
        return {"messages": [message.model_copy(update={"id": "m1"})]}

    async def mend(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("other words", id="m1")]}

    async def remove(state: MessagesState) -> dict[str, Any]:
        return {"messages": [RemoveMessage(id="m1")]}

    return one_node("say", say, mend, remove)


def _failing(gates: Gates) -> StateGraph:
    async def say(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await Speaker(text="I try").ainvoke("")]}

    async def fail(state: MessagesState) -> dict[str, Any]:
        message = "no such file"
        raise ValueError(message)

    return one_node("say", say, fail)


GRAPHS: Final[dict[str, Callable[[Gates], StateGraph]]] = {
    "plain": plain_tools,
    "asking": asking,
    "parallel": _parallel,
    "both ask": _both_ask,
    "one asks": _one_asks,
    "two questions": _two_questions,
    "nested": _nested,
    "private": _private,
    "replaced": _replaced,
    "failing": _failing,
}

_BOTH: Final = (Task(says="both", calls=("call-a", "call-b")),)
_BOTH_DONE: Final = (Task(says="both done"),)

SCRIPTS: Final[dict[str, Script]] = {
    "plain": (
        (Task(says="let me look", calls=("call-look",), gate="ask"),),
        (Task(answers="call-look", gate="look"),),
        (Task(says="all is done", gate="answer"),),
    ),
    "asking": ((Task(says="may I do it", asks=("may I",)),),),
    "parallel": (
        _BOTH,
        (Task(answers="call-a", gate="a"), Task(answers="call-b", gate="b")),
        _BOTH_DONE,
    ),
    "both ask": (
        _BOTH,
        (
            Task(answers="call-a", gate="a", asks=("a?",)),
            Task(answers="call-b", gate="b", asks=("b?",)),
        ),
        _BOTH_DONE,
    ),
    "one asks": (
        _BOTH,
        (Task(answers="call-a", gate="a", asks=("a?",)), Task(answers="call-b", gate="b")),
        _BOTH_DONE,
    ),
    "two questions": ((Task(answers="call-ask", gate="ask", asks=("first?", "second?")),),),
    "two_questions": ((Task(says="yes and no", asks=("first?", "second?")),),),
    "nested": ((Task(says="inside", nested=2, gate="two"),),),
    "private": ((Task(says="hello", mutters="secret thoughts"),),),
    "replaced": (
        (Task(says="first words"),),
        (Task(says="other words", silent=True),),
        (Task(silent=True),),
    ),
    "failing": ((Task(says="I try"),), (Task(fails="ValueError: no such file"),)),
}
