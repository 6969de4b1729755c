"""What readers see of real tools, in LangGraph's own tool node: arguments, results, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from tests.integration.agent.harness import running_agent


@tool
def count(numbers: list[int], names: dict[str, str]) -> dict[str, Any]:
    """Return something that is no text."""
    return {"sum": sum(numbers), "names": names}


@tool
def break_down(why: str) -> str:
    """Raise."""
    raise ValueError(why)


def calling(one: BaseTool, args: dict[str, Any]) -> StateGraph:
    """A model's message that calls the tool, then the tool."""

    async def ask(state: MessagesState) -> dict[str, Any]:
        call = {"name": one.name, "args": args, "id": "c1", "type": "tool_call"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode([one], handle_tool_errors=True))
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "tools")
    return graph


async def told(graph: StateGraph, file: Path) -> dict[str, dict[str, Any]]:
    """Return the events of the tool call by their type, the items by their kind."""
    async with running_agent(graph, file) as agent:
        events = await agent.dispatch().all()
    return {
        event["item"]["type"] if "item" in event else event["type"]: event
        for event in events
        if "call_id" in event or "call_id" in event.get("item", {})
    }


async def test_a_tool_call_is_four_events_and_what_is_no_text_is_json(tmp_path: Path) -> None:
    args = {"numbers": [1, 2], "names": {"a": "ü"}}

    events = await told(calling(count, args), tmp_path / "s.db")

    assert list(events) == [
        "function_call",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "function_call_output",
    ]
    assert json.loads(events["response.function_call_arguments.done"]["arguments"]) == args
    item = events["function_call_output"]["item"]
    assert json.loads(item["output"]) == {"sum": 3, "names": {"a": "ü"}}
    assert "error" not in item
    assert {event.get("call_id") or event["item"]["call_id"] for event in events.values()} == {"c1"}


async def test_a_tool_that_raises_gives_an_output_that_says_so(tmp_path: Path) -> None:
    events = await told(calling(break_down, {"why": "no such file"}), tmp_path / "s.db")

    item = events["function_call_output"]["item"]
    assert item["error"] is True
    assert "no such file" in item["output"]
