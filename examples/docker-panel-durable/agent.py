"""Two jobs as a LangGraph agent: four slow steps, and files that it asks before it deletes.

    vystak-turns-agent serve agent:builder --name default --host 127.0.0.1 --port 8000

A model speaks and calls tools, one call a message, until it calls none. Nothing here knows about
crashes: `builder` returns an ordinary graph, and `delete_files` asks with LangGraph's `interrupt`.

    STEP_SECONDS     how long a step takes (2)
    COMPLETION_LOG   file that gets one line at the end of each step and deletion (none)
    CHAT_MODEL       another chat model than the scripted one: `module:factory`, or a name for
                     LangChain's `init_chat_model` such as `anthropic:claude-sonnet-4-5`
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt
from script import ScriptedModel

STEP_SECONDS = float(os.environ.get("STEP_SECONDS") or 2)


def builder() -> StateGraph[Any, Any, Any, Any]:
    """Return the graph: the model speaks, its tool calls are carried out, until it calls none."""
    return with_tools(slow_step, delete_files, repeat)


def with_tools(*tools: BaseTool) -> StateGraph[Any, Any, Any, Any]:
    """Return the same graph with other tools of the same names."""
    model = chat_model(os.environ.get("CHAT_MODEL", "")).bind_tools(tools)

    async def speak(state: MessagesState) -> dict[str, list[BaseMessage]]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("speak", speak)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "speak")
    graph.add_conditional_edges("speak", tools_condition)
    graph.add_edge("tools", "speak")
    return graph


@tool
async def slow_step(label: str) -> str:
    """Carry out one step of the job. The steps are one, two, three and four, in this order."""
    await asyncio.sleep(STEP_SECONDS)
    log_completion(label)
    return f"step {label} is done"


@tool
async def delete_files(names: list[str]) -> str:
    """Delete files, once the user has approved it."""
    question = {"kind": "tool_approval", "tool": "delete_files", "args": {"names": names}}
    decision = interrupt({**question, "skill": "housekeeping"})
    if not _approved(decision):
        return _denied(decision)
    log_completion("delete")  # it is an example: nothing else is deleted
    return f"deleted {', '.join(names)}"


@tool
async def repeat(words: str) -> str:
    """Say the user's words back, whatever they are."""
    return words


def _approved(decision: Any) -> bool:
    return isinstance(decision, dict) and bool(decision.get("approved"))


def _denied(decision: Any) -> str:
    answer = decision if isinstance(decision, dict) else {}
    who, note = answer.get("decided_by") or "unknown", answer.get("note") or "no reason given"
    return f"Denied by {who}: {note}"


def log_completion(label: str) -> None:
    """Note that a step took effect; the line is on disk before the step is reported as done."""
    path = os.environ.get("COMPLETION_LOG")
    if not path:
        return
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log, f"{label}\n".encode())
        os.fsync(log)
    finally:
        os.close(log)


def chat_model(name: str) -> BaseChatModel:
    """Return the model of this name, the scripted one for an empty name."""
    if not name:
        return ScriptedModel()
    module, _, attribute = name.partition(":")
    if attribute.isidentifier() and (factory := _found(module, attribute)):
        return factory()
    try:
        langchain = importlib.import_module("langchain.chat_models")
    except ImportError:
        raise SystemExit(
            f"CHAT_MODEL={name}: no such module:factory, and for a model's name "
            "LangChain is needed: pip install langchain"
        ) from None
    return cast("BaseChatModel", langchain.init_chat_model(name))


def _found(module: str, attribute: str) -> Callable[[], BaseChatModel] | None:
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None
