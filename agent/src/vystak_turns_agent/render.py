"""What readers are shown of a turn: one pure function, used live and for catch-up (R3).

The rule. For each root checkpoint that is stamped with the turn, the AI and tool messages whose
id is new, as first committed; then the results of the finished tasks of the step that is not yet
committed. Hence:

- Replaced and removed messages keep the form in which they were first committed.
- The step that applies a turn's input shows nothing: neither the user's own message nor the tool
  messages that close what an earlier turn left open.
- A nested graph's messages appear when the outer step commits, because only then the root has
  them.

Live and catch-up must agree for every crash point, so everything here is a function of stored
values: no clock, no random ids, no I/O.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from vystak_turns_rpc import events as wire

Event: TypeAlias = dict[str, Any]

MESSAGES_KEY: Final = "messages"
_LOOP: Final = "loop"
_INPUT: Final = "input"


@dataclass(frozen=True, slots=True)
class Step:
    """One root checkpoint: its id, what made it, and the thread's messages as of it."""

    checkpoint_id: str
    source: str
    messages: tuple[BaseMessage, ...]

    @property
    def is_boundary(self) -> bool:
        """Only the loop's checkpoints are certain to be stored when they are seen."""
        return self.source == _LOOP


@dataclass(frozen=True, slots=True)
class History:
    """A turn as the checkpointer has it: enough to render it without asking anybody.

    `known` are the ids of the messages that the thread held before the turn, `finished` the
    messages that finished tasks of the uncommitted step returned.
    """

    known: frozenset[str]
    steps: tuple[Step, ...]
    finished: tuple[BaseMessage, ...] = ()


@dataclass(slots=True)
class Ledger:
    """Which messages readers have already met. Live and catch-up both ask it what is new."""

    seen: set[str] = field(default_factory=set)
    applying_input: bool = False

    def admit(self, step: Step) -> list[BaseMessage]:
        """Take a checkpoint in and return the messages that it shows for the first time."""
        fresh: list[BaseMessage] = []
        for message in _identified(step.messages):
            if message.id not in self.seen:
                self.seen.add(str(message.id))
                fresh.append(message)
        shows = step.is_boundary and not self.applying_input
        self.applying_input = step.source == _INPUT
        return [message for message in fresh if is_shown(message)] if shows else []

    def unseen(self, results: Iterable[BaseMessage]) -> list[BaseMessage]:
        """Return what may be shown of the results of tasks whose step is not committed.

        An AI message without an id gets one only at the commit, so it has to wait for it.
        """
        return [
            message
            for message in results
            if is_shown(message)
            and message.id not in self.seen
            and (message.id is not None or isinstance(message, ToolMessage))
        ]


def render(history: History, after_checkpoint_id: str | None = None) -> Iterator[Event]:
    """Yield the turn's events after a checkpoint (None: from its start), markers included."""
    ledger = Ledger(set(history.known))
    showing = after_checkpoint_id is None
    for step in history.steps:
        fresh = ledger.admit(step)
        if showing:
            for message in fresh:
                yield from message_events(message)
            if step.is_boundary:
                yield marker(step.checkpoint_id)
        showing = showing or step.checkpoint_id == after_checkpoint_id
    for message in ledger.unseen(history.finished):
        yield from message_events(message)


def ledger_of(history: History) -> Ledger:
    """Return the ledger as it stands after all committed steps."""
    ledger = Ledger(set(history.known))
    for step in history.steps:
        ledger.admit(step)
    return ledger


def reply_text(history: History) -> str:
    """Return the whole text of the turn's AI messages, joined as the events' deltas would be."""
    ledger = Ledger(set(history.known))
    fresh = (message for step in history.steps for message in ledger.admit(step))
    return "".join(text_of(message) for message in fresh if isinstance(message, AIMessage))


def message_events(message: BaseMessage, sent: str = "") -> Iterator[Event]:
    """Yield a message's events; `sent` is the part of its text that readers already have."""
    if isinstance(message, ToolMessage):
        yield _tool_output(message)
    elif isinstance(message, AIMessage):
        yield from _text_events(message, sent)
        for call in message.tool_calls:
            yield from _call_events(call)


def is_shown(message: BaseMessage) -> bool:
    """Tell whether readers see this kind of message at all."""
    return isinstance(message, AIMessage | ToolMessage)


def text_of(message: BaseMessage) -> str:
    """Return the text of a message; thinking and other blocks are none."""
    content = message.content
    if isinstance(content, str):
        return content
    return "".join(_block_text(block) for block in content)


def results_of(update: Any) -> list[BaseMessage]:
    """Return the messages in a task's result, whatever form the node returned it in."""
    if not isinstance(update, Mapping):
        return []
    writes = update.get(MESSAGES_KEY)
    several = writes.get("$writes") if isinstance(writes, Mapping) else None
    parts = [writes] if several is None else several
    found: list[BaseMessage] = []
    for part in parts:
        if isinstance(part, BaseMessage):
            found.append(part)
        elif isinstance(part, list | tuple):
            found += [message for message in part if isinstance(message, BaseMessage)]
    return found


def messages_of(values: Any) -> tuple[BaseMessage, ...]:
    """Return the messages of a thread's state, or nothing where it has none."""
    messages = values.get(MESSAGES_KEY) if isinstance(values, Mapping) else None
    if not isinstance(messages, Sequence):
        return ()
    return tuple(message for message in messages if isinstance(message, BaseMessage))


def known_ids(messages: Sequence[BaseMessage]) -> frozenset[str]:
    """Return the ids under which a ledger knows these messages."""
    return frozenset(str(message.id) for message in _identified(messages))


def item_id_of(message_id: str | None) -> str:
    """Return the wire's id of a message: the same from live text and from the checkpoint."""
    return "msg_" + hashlib.sha256(str(message_id).encode()).hexdigest()[:12]


def marker(checkpoint_id: str) -> Event:
    """Say in band that a step is committed."""
    return {"type": wire.CHECKPOINT, "checkpoint_id": checkpoint_id}


def text_delta(item_id: str, text: str) -> Event:
    """Say more of a message's text."""
    return {"type": wire.TEXT_DELTA, **_position(item_id), "delta": text}


def _text_events(message: AIMessage, sent: str) -> Iterator[Event]:
    text = text_of(message)
    if not text:
        return
    item_id = item_id_of(message.id)
    if rest := text[len(sent) :]:
        yield text_delta(item_id, rest)
    yield {"type": wire.TEXT_DONE, **_position(item_id), "text": text}


def _call_events(call: Mapping[str, Any]) -> Iterator[Event]:
    call_id = str(call.get("id") or "")
    arguments = _json(call.get("args", {}))
    item = {
        "type": wire.FUNCTION_CALL,
        "id": call_id,
        "call_id": call_id,
        "name": str(call.get("name", "")),
        "arguments": "",
    }
    yield {"type": wire.ITEM_ADDED, "item": item}
    yield {"type": wire.ARGUMENTS_DELTA, "call_id": call_id, "delta": arguments}
    yield {"type": wire.ARGUMENTS_DONE, "call_id": call_id, "arguments": arguments}


def _tool_output(message: ToolMessage) -> Event:
    item: Event = {
        "type": wire.FUNCTION_CALL_OUTPUT,
        "call_id": message.tool_call_id,
        "output": message.content if isinstance(message.content, str) else _json(message.content),
    }
    if message.status == "error":
        item["error"] = True
    return {"type": wire.ITEM_ADDED, "item": item}


def _position(item_id: str) -> Event:
    return {"item_id": item_id, "output_index": 0, "content_index": 0}


def _identified(messages: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    """Give messages of states that keep no ids the only lasting name they have: their place."""
    for index, message in enumerate(messages):
        yield message if message.id else message.model_copy(update={"id": f"place-{index}"})


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping) and block.get("type") == "text":
        return str(block.get("text", ""))
    return ""


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
