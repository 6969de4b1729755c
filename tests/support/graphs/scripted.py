"""A chat model that says the n-th line of a script after n messages of its own in this turn.

While the file hold-say-N exists, line N stops after two words. `{tag}` in a line stands for what
the user's message says after a `#`; the labels of the steps then begin with it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from tests.support.graphs.control import pass_gate

TOKEN_PAUSE_S = 0.002
MID_SENTENCE = 2  # words


@dataclass(frozen=True, slots=True)
class Say:
    """One message: its text and the steps that it calls for."""

    text: str
    steps: tuple[str, ...] = ()


class ScriptedModel(BaseChatModel):
    """Streams its lines word by word; which one is next depends on the thread alone."""

    script: tuple[Say, ...]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for place, chunk in enumerate(self._chunks(messages)):
            await asyncio.sleep(TOKEN_PAUSE_S)
            if place == MID_SENTENCE:
                await pass_gate(f"say-{said_in_turn(messages)}")
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        whole = AIMessageChunk(content="")
        for chunk in self._chunks(messages):
            whole = cast("AIMessageChunk", whole + chunk.message)
        message = AIMessage(content=whole.content, tool_calls=whole.tool_calls)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _chunks(self, messages: Sequence[BaseMessage]) -> list[ChatGenerationChunk]:
        line = self.script[said_in_turn(messages)]
        turn = sum(isinstance(message, HumanMessage) for message in messages)
        tag = tag_of(messages)
        text = line.text.replace("{tag}", tag)
        chunks = [AIMessageChunk(content=word) for word in re.findall(r"\S+\s*", text)]
        for index, step in enumerate(line.steps):
            label = f"{tag}.{step}" if tag else step
            arguments = json.dumps({"label": label})
            call = tool_call_chunk(
                name="slow_step", args=arguments, id=f"call_{turn}_{label}", index=index
            )
            chunks.append(AIMessageChunk(content="", tool_call_chunks=[call]))
        return [ChatGenerationChunk(message=chunk) for chunk in chunks]


def tag_of(messages: Sequence[BaseMessage]) -> str:
    """Return what the user's last message says after a `#`, else nothing."""
    asked = next((m for m in reversed(messages) if isinstance(m, HumanMessage)), None)
    return "" if asked is None else str(asked.text).partition("#")[2]


def said_in_turn(messages: Sequence[BaseMessage]) -> int:
    """Count the model's messages since the user's last one."""
    count = 0
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            break
        count += isinstance(message, AIMessage)
    return count
