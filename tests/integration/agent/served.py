"""Graphs for agents in processes of their own; their steps ask the test's gate server first."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from tests.integration.agent.graphs import Speaker, plain_tools


class RemoteGates:
    """Says which step begins and waits until the test lets it pass."""

    async def step(self, name: str) -> None:
        reader, writer = await asyncio.open_unix_connection(os.environ["GATES"])
        writer.write(f"{name}\n".encode())
        await reader.readline()
        writer.close()


def wait_in_thread(name: str) -> None:
    """Do the same from a worker thread."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["GATES"])
        connection.sendall(f"{name}\n".encode())
        connection.recv(16)


def plain() -> StateGraph:
    """Text and a call, the tool, text."""
    return plain_tools(RemoteGates())  # type: ignore[arg-type]


def parallel() -> StateGraph:
    """Two calls whose tools run side by side, then text."""
    gates = RemoteGates()

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await Speaker(text="both", calls=("a", "b")).ainvoke("")]}

    async def a(state: MessagesState) -> dict[str, Any]:
        await gates.step("a")
        return {"messages": [ToolMessage("from a", tool_call_id="call-a")]}

    async def b(state: MessagesState) -> dict[str, Any]:
        await gates.step("b")
        return {"messages": [ToolMessage("from b", tool_call_id="call-b")]}

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("both done")]}

    graph = StateGraph(MessagesState)
    for node in (ask, a, b, answer):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "a")
    graph.add_edge("ask", "b")
    graph.add_edge(["a", "b"], "answer")
    return graph


def threaded() -> StateGraph:
    """A sync node, which works in a thread, then text."""

    def work(state: MessagesState) -> dict[str, Any]:
        wait_in_thread("work")
        return {"messages": [AIMessage("worked")]}

    def more(state: MessagesState) -> dict[str, Any]:
        wait_in_thread("more")
        return {"messages": [AIMessage("and more")]}

    graph = StateGraph(MessagesState)
    graph.add_node("work", work)
    graph.add_node("more", more)
    graph.add_edge(START, "work")
    graph.add_edge("work", "more")
    return graph


def two_questions() -> StateGraph:
    """Two questions of one node, with a gate after the first answer."""
    gates = RemoteGates()

    async def ask(state: MessagesState) -> dict[str, Any]:
        first = interrupt("first?")
        await gates.step(f"told {first}")
        second = interrupt("second?")
        return {"messages": [AIMessage(f"{first} and {second}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    return graph


def with_breakpoint(checkpointer: Any) -> Any:
    """A graph that cannot be served."""
    return plain().compile(checkpointer=checkpointer, interrupt_before=["look"])
