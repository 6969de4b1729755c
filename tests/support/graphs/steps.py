"""Graphs of four steps: one after the other, the same in threads, three of them side by side."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Send

from tests.support.graphs.control import add_input, slow_step, slow_step_in_a_thread
from tests.support.graphs.scripted import Say, ScriptedModel

Graph = StateGraph[Any, Any, Any, Any]


class State(TypedDict):
    messages: Annotated[list[BaseMessage], add_input]


ONE_BY_ONE = (
    Say("I start step one now. ", ("one",)),
    Say("I start step two now. ", ("two",)),
    Say("I start step three now. ", ("three",)),
    Say("I start step four now. ", ("four",)),
    Say("All four steps are done."),
)
SIDE_BY_SIDE = (
    Say("I start three steps at once. ", ("one", "two", "three")),
    Say("I start step four now. ", ("four",)),
    Say("All four steps are done."),
)


def builder() -> Graph:
    """Four steps, one a message."""
    return _loop(slow_step)


def threads() -> Graph:
    """The same with sync tools, which run in threads."""
    return _loop(slow_step_in_a_thread)


def parallel() -> Graph:
    """Three branches in one graph step, each a task of its own, then one more step."""
    graph: Graph = StateGraph(State)
    graph.add_node("speak", speaker(SIDE_BY_SIDE))
    graph.add_node("branch", cast("Any", _branch))
    graph.add_edge(START, "speak")
    graph.add_conditional_edges("speak", _fan_out, ["branch", END])
    graph.add_edge("branch", "speak")
    return graph


def speaker(script: tuple[Say, ...]) -> Any:
    """Return the node that lets the model say its next line."""
    model = ScriptedModel(script=script)

    async def speak(state: State) -> dict[str, list[BaseMessage]]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return speak


def _loop(step: BaseTool) -> Graph:
    graph: Graph = StateGraph(State)
    graph.add_node("speak", speaker(ONE_BY_ONE))
    graph.add_node("tools", ToolNode([step]))
    graph.add_edge(START, "speak")
    graph.add_conditional_edges("speak", tools_condition)
    graph.add_edge("tools", "speak")
    return graph


def _fan_out(state: State) -> list[Send] | str:
    last = state["messages"][-1]
    calls = last.tool_calls if isinstance(last, AIMessage) else []
    return [Send("branch", call) for call in calls] or END


async def _branch(call: Any) -> dict[str, list[ToolMessage]]:
    return {"messages": [await slow_step.ainvoke(call)]}
