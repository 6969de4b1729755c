"""The example's chat model: it reads its lines from a script, needs no key and no network.

Which script depends on the user's words: "delete" asks before it deletes, "repeat WORDS" says
them back through a tool, "fail" breaks the graph, and anything else is the job in four steps.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import ToolCall, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

STEP_TOOL = "slow_step"
DELETE_TOOL = "delete_files"
REPEAT_TOOL = "repeat"

LABELS = ("one", "two", "three", "four")
OLD_FILES = ("report-2019.pdf", "report-2020.pdf", "draft-old.txt")
TOKEN_PAUSE_S = 0.02

_REPEAT = re.compile(r"\s*repeat:?\s+(?P<words>.+)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Line:
    """What the model says next, and the tool that it then calls, if any."""

    text: str
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    call_id: str = ""

    def call(self) -> ToolCall:
        """Return the tool call that goes with the text."""
        return tool_call(name=self.tool, args=self.arguments, id=self.call_id)


def next_line(messages: Sequence[BaseMessage]) -> Line:
    """Return the script's next line.

    It depends on nothing but the thread, so a process that takes over goes on where another died.
    Raises RuntimeError when the user wants to see a failure.
    """
    turn = sum(isinstance(message, HumanMessage) for message in messages)
    last = max(i for i, message in enumerate(messages) if isinstance(message, HumanMessage))
    wish, since = _text(messages[last]), messages[last + 1 :]
    said = sum(isinstance(message, AIMessage) for message in since)
    if repeat := _REPEAT.fullmatch(wish):
        return _repeat_line(said, turn, repeat["words"])
    if "delete" in wish.lower():
        return _delete_line(said, turn, since)
    if "fail" in wish.lower():
        return _failing_line(said, turn)
    return _step_line(said, turn)


def _step_line(said: int, turn: int) -> Line:
    if said >= len(LABELS):
        return Line("All four steps are done.")
    label = LABELS[said]
    words = f"I start step {label} now. "
    return Line(words, STEP_TOOL, {"label": label}, f"call_{turn}_{label}")


def _delete_line(said: int, turn: int, since: Sequence[BaseMessage]) -> Line:
    if said == 0:
        words = f"{len(OLD_FILES)} old files are no longer needed. I ask before I delete them. "
        return Line(words, DELETE_TOOL, {"names": list(OLD_FILES)}, f"call_{turn}_delete")
    return Line(f"This is what came of it: {_text(since[-1])}")


def _repeat_line(said: int, turn: int, words: str) -> Line:
    if said == 0:
        return Line("I pass your words on. ", REPEAT_TOOL, {"words": words}, f"call_{turn}_repeat")
    return Line(words)


def _failing_line(said: int, turn: int) -> Line:
    if said == 0:
        words = "I do the first step, and then I fail. "
        return Line(words, STEP_TOOL, {"label": LABELS[0]}, f"call_{turn}_one")
    raise RuntimeError("the example failed, as you asked it to")


def _text(message: BaseMessage) -> str:
    return str(message.text)


class ScriptedModel(BaseChatModel):
    """A chat model that speaks word by word what the script says."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, AIMessage]:
        """Take note of nothing: the script knows its tools."""
        known = {each.name for each in tools if isinstance(each, BaseTool)}
        missing = {STEP_TOOL, DELETE_TOOL, REPEAT_TOOL} - known
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
        calls = [line.call()] if line.tool else []
        message = AIMessage(content=line.text, tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


def _chunks(line: Line) -> Iterator[ChatGenerationChunk]:
    for word in re.findall(r"\s*\S+\s*|\s+", line.text):
        yield ChatGenerationChunk(message=AIMessageChunk(content=word))
    if line.tool:
        call = line.call()
        piece = tool_call_chunk(
            name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=0
        )
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[piece]))
