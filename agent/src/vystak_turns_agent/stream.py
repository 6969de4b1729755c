"""Turn LangGraph's ordered stream into the events of a turn while the graph runs.

Only two things are told before they are committed: the text of a message, token by token, and the
results of a parallel step's finished tasks. Everything else waits for the step's checkpoint. What
was told ahead is compared with what was committed; where they differ the step is taken back in
band (`vystak.rollback`) and rendered as it was committed (R3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage

from vystak_turns_agent.render import (
    Event,
    Ledger,
    Step,
    is_shown,
    item_id_of,
    marker,
    message_events,
    messages_of,
    results_of,
    text_delta,
    text_of,
)
from vystak_turns_rpc import events as wire

STREAM_MODES: Final = ("checkpoints", "tasks", "messages")


@dataclass(slots=True)
class _Ahead:
    """What was told of one message before its commit; `whole` once all of it was told."""

    text: str = ""
    whole: BaseMessage | None = None


@dataclass(slots=True)
class Live:
    """The teller of one run. Feed it the stream's items in order; it yields events in order.

    `last_marker` is the boundary that a rollback goes back to (None: the turn's start),
    `replies` collects the turn's committed text.
    """

    ledger: Ledger
    last_marker: str | None = None
    reached: str | None = None
    replies: list[str] = field(default_factory=list)
    _ahead: dict[str, _Ahead] = field(default_factory=dict)
    _tasks_begun: int = 0

    def feed(self, mode: str, data: Any) -> Iterator[Event]:
        """Yield what one item of the stream says to readers."""
        if mode == "messages":
            yield from self._on_message(*data)
        elif mode == "tasks":
            yield from self._on_task(data)
        elif mode == "checkpoints":
            yield from self._on_checkpoint(data)

    def tell_finished(self, results: Iterable[BaseMessage]) -> Iterator[Event]:
        """Yield results of finished tasks that readers have not had yet."""
        for message in self.ledger.unseen(results):
            known = self._ahead.setdefault(_key(message), _Ahead())
            if known.whole is None and text_of(message).startswith(known.text):
                yield from message_events(message, known.text)
                known.whole = message

    def assume_told(self, results: Iterable[BaseMessage]) -> None:
        """Note results of finished tasks that readers already have from an earlier stream."""
        for message in self.ledger.unseen(results):
            self._ahead[_key(message)] = _Ahead(whole=message)

    def stopped(self, finished: Iterable[BaseMessage]) -> Iterator[Event]:
        """Settle the step in flight when the run parks: only finished results may stay."""
        results = self.ledger.unseen(finished)
        if not self._holds(results):
            yield self._rollback()
        yield from self.tell_finished(results)

    def _on_message(self, message: BaseMessage, metadata: Mapping[str, Any]) -> Iterator[Event]:
        nested = "|" in str(metadata.get("langgraph_checkpoint_ns", ""))
        if nested or not isinstance(message, AIMessageChunk) or message.id in self.ledger.seen:
            return
        if text := text_of(message):
            self._ahead.setdefault(_key(message), _Ahead()).text += text
            yield text_delta(item_id_of(message.id), text)

    def _on_task(self, task: Mapping[str, Any]) -> Iterator[Event]:
        if "result" not in task:
            self._tasks_begun += 1
        elif self._tasks_begun > 1 and not task.get("error") and not task.get("interrupts"):
            yield from self.tell_finished(results_of(task["result"]))

    def _on_checkpoint(self, item: Mapping[str, Any]) -> Iterator[Event]:
        configurable = item["config"]["configurable"]
        step = Step(
            configurable["checkpoint_id"], item["metadata"]["source"], messages_of(item["values"])
        )
        if configurable.get("checkpoint_ns") or step.checkpoint_id == self.reached:
            return  # a nested graph's, or the one that the run started from
        self._tasks_begun = 0
        fresh = self.ledger.admit(step)
        if step.is_boundary:
            yield from self._commit(fresh)
            self.last_marker = step.checkpoint_id
            yield marker(step.checkpoint_id)

    def _commit(self, fresh: list[BaseMessage]) -> Iterator[Event]:
        if not self._holds(fresh):
            yield self._rollback()
        for message in fresh:
            known = self._ahead.pop(_key(message), _Ahead())
            if known.whole is None:
                yield from message_events(message, known.text)
        self._ahead.clear()
        self.replies += [text_of(message) for message in fresh if isinstance(message, AIMessage)]

    def _holds(self, committed: Iterable[BaseMessage]) -> bool:
        """Tell whether everything told ahead is the beginning of what was committed."""
        by_key = {_key(message): message for message in reversed(list(committed))}
        for key, known in self._ahead.items():
            message = by_key.get(key)
            if message is None or not text_of(message).startswith(known.text):
                return False
            if known.whole and [*message_events(known.whole)] != [*message_events(message)]:
                return False
        return True

    def _rollback(self) -> Event:
        self._ahead.clear()
        return {"type": wire.ROLLBACK, "checkpoint_id": self.last_marker}


def _key(message: BaseMessage) -> str:
    """Name a message before and after its commit: a tool message gets its id only there."""
    if isinstance(message, ToolMessage):
        return f"tool {message.tool_call_id}"
    assert is_shown(message)
    return f"ai {message.id}"
