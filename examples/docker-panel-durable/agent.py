"""A job in four steps, as a LangGraph agent that needs no key and no network.

    vystak-turns-agent serve agent:builder --name default --host 127.0.0.1 --port 8000

A scripted chat model calls the tool `slow_step` for `one`, `two`, `three` and `four`, one call a
message, and then answers. Nothing here knows about crashes: `builder` is an ordinary graph.

    STEP_SECONDS     how long a step takes (2)
    COMPLETION_LOG   file that gets one line at the end of each step (none)
    CHAT_MODEL       another chat model: `module:factory`, or a name for LangChain's
                     `init_chat_model` such as `anthropic:claude-sonnet-4-5`
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import ToolCall, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

LABELS = ("one", "two", "three", "four")
STEP_SECONDS = float(os.environ.get("STEP_SECONDS") or 2)
TOKEN_PAUSE_S = 0.02


def builder() -> StateGraph[Any, Any, Any, Any]:
    """Return the graph: the model speaks, its tool calls are carried out, until it calls none."""
    model = chat_model(os.environ.get("CHAT_MODEL", "")).bind_tools([slow_step])

    async def speak(state: MessagesState) -> dict[str, list[BaseMessage]]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("speak", speak)
    graph.add_node("tools", ToolNode([slow_step]))
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


@dataclass(frozen=True, slots=True)
class Line:
    """What the model says next, and the step that it then calls for, if any."""

    text: str
    label: str | None = None
    call_id: str = ""

    def call(self) -> ToolCall:
        """Return the tool call that goes with the text."""
        return tool_call(name=slow_step.name, args={"label": self.label}, id=self.call_id)


def next_line(messages: Sequence[BaseMessage]) -> Line:
    """Return the script's next line.

    It depends on nothing but the thread, so a process that takes over goes on where another died.
    """
    turn = sum(isinstance(message, HumanMessage) for message in messages)
    said = 0
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            break
        said += isinstance(message, AIMessage)
    if said >= len(LABELS):
        return Line("All four steps are done.")
    label = LABELS[said]
    return Line(f"I start step {label} now. ", label, f"call_{turn}_{label}")


class ScriptedModel(BaseChatModel):
    """A chat model that reads its lines from a script, word by word."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, AIMessage]:
        """Take note of nothing: the script knows its tool."""
        missing = {slow_step.name} - {each.name for each in tools if isinstance(each, BaseTool)}
        if missing:
            raise ValueError(f"the script calls {missing}, which is not among the tools")
        return self

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - LangChain's name
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in _chunks(next_line(messages)):
            await asyncio.sleep(TOKEN_PAUSE_S)
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - LangChain's name
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 - as above
        **_: Any,
    ) -> ChatResult:
        line = next_line(messages)
        calls = [line.call()] if line.label else []
        message = AIMessage(content=line.text, tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


def _chunks(line: Line) -> Iterator[ChatGenerationChunk]:
    for word in re.findall(r"\S+\s*", line.text):
        yield ChatGenerationChunk(message=AIMessageChunk(content=word))
    if line.label:
        call = line.call()
        piece = tool_call_chunk(
            name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=0
        )
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[piece]))
