"""From the messages of a turn log to what a user sees. Pure: no I/O, no clock.

Every reader must see the same, whenever it came: a rewind keeps the events with seq <= its
`to_seq` and drops the later ones, text is put together by `item_id`, results by `call_id`. An event
of an unknown type changes nothing, nor does anything after the terminal event (R1, R2, R3).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from vystak_turns_client.questions import tool_of
from vystak_turns_client.retained import Retained
from vystak_turns_rpc import events
from vystak_turns_rpc.events import Event, TurnMessage
from vystak_turns_rpc.vocabulary import Json


class Outcome(StrEnum):
    """How a turn ended."""

    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Text:
    """One message of the agent."""

    item_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call; `output` is None until the tool answered."""

    call_id: str
    name: str
    arguments: str
    output: str | None = None
    is_error: bool = False


Item: TypeAlias = Text | ToolCall


@dataclass(frozen=True, slots=True)
class Approval:
    """The question that a parked turn waits on."""

    payload: Json
    park_generation: int | None
    interrupt_id: str | None


@dataclass(frozen=True, slots=True)
class End:
    """The terminal event; `message` and `code` say why a turn failed."""

    outcome: Outcome
    message: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a user sees of a turn after the message with seq `cursor` (-1: nothing was read)."""

    items: tuple[Item, ...] = ()
    approval: Approval | None = None
    end: End | None = None
    response_id: str | None = None
    cursor: int = -1
    rewinds: int = 0

    @property
    def text(self) -> str:
        """All text of the agent, in order."""
        return "".join(item.text for item in self.items if isinstance(item, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """All tool calls, in order."""
        return tuple(item for item in self.items if isinstance(item, ToolCall))


def fold(messages: Iterable[TurnMessage]) -> Transcript:
    """Return what a user sees after these messages, given in the log's order."""
    folding = Fold()
    for message in messages:
        folding.feed(message)
    return folding.transcript()


class Fold:
    """The same step by step: `feed` costs O(1), a rewind or a seq that was seen O(events kept).

    `transcript` costs O(items).
    """

    def __init__(self) -> None:
        """Start with nothing read."""
        self._retained = Retained()
        self._page = _Page()

    @property
    def ended(self) -> bool:
        """Whether the terminal event was read."""
        return self._retained.ended

    @property
    def approval(self) -> Approval | None:
        """The question that the turn waits on."""
        return self._page.approval

    def feed(self, message: TurnMessage) -> None:
        """Take the next message of the log."""
        match self._retained.take(message):
            case None:
                pass
            case events.TurnRewind():
                self._page = _Page()
                for entry in self._retained.entries:
                    self._page.add(entry.event)
            case event:
                self._page.add(event)

    def transcript(self) -> Transcript:
        """Return what a user sees now."""
        page = self._page
        return Transcript(
            items=tuple(part.item() for part in page.shown()),
            approval=page.approval,
            end=page.end,
            response_id=page.response_id,
            cursor=self._retained.cursor,
            rewinds=self._retained.rewinds,
        )


@dataclass(slots=True)
class _TextPart:
    item_id: str
    pieces: list[str] = field(default_factory=list)

    def item(self) -> Item:
        return Text(self.item_id, "".join(self.pieces))


@dataclass(slots=True)
class _CallPart:
    call_id: str
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    output: str | None = None
    is_error: bool = False
    # The call only hit a gate: its "result" is the question, not what the tool did.
    is_artifact: bool = False

    def item(self) -> Item:
        arguments = "".join(self.pieces)
        return ToolCall(self.call_id, self.name, arguments, self.output, self.is_error)


@dataclass(slots=True)
class _Page:
    # Keyed by kind and id: nothing keeps an item_id from equalling a call_id.
    parts: dict[tuple[str, str], _TextPart | _CallPart] = field(default_factory=dict)
    approval: Approval | None = None
    end: End | None = None
    response_id: str | None = None

    def shown(self) -> list[_TextPart | _CallPart]:
        return [
            part
            for part in self.parts.values()
            if not (isinstance(part, _CallPart) and part.is_artifact)
        ]

    def add(self, event: Event) -> None:
        match event:
            case events.TextDelta():
                self._text(event.item_id).pieces.append(event.delta)
            case events.ItemAdded():
                if not self._add_item(event.item):
                    return
            case events.ArgumentsDelta():
                self._call(event.call_id).pieces.append(event.delta)
            case events.ArgumentsDone():
                self._call(event.call_id).pieces = [event.arguments]
            case events.ApprovalRequested():
                self._drop_artifact(tool_of(event.payload))
                self.approval = Approval(event.payload, event.park_generation, event.interrupt_id)
                return
            case events.ResponseCreated():
                self.response_id = _word(event.response, "id") or self.response_id
                return
            case events.ResponseCompleted() | events.ResponseFailed() | events.UnknownEvent():
                self.end, response_id = end_of(event)
                self.response_id = response_id or self.response_id
            case _:
                return
        # Content after a question means that it was decided.
        self.approval = None

    def _add_item(self, item: events.FunctionCallItem | Any) -> bool:
        match item:
            case events.FunctionCallItem():
                call = self._call(item.call_id)
                call.name, call.pieces = item.name, []
                call.output, call.is_error, call.is_artifact = None, False, False
            case events.FunctionCallOutputItem():
                call = self._call(item.call_id)
                call.output, call.is_error = as_text(item.output), item.error
                call.is_artifact = False
            case _:
                return False
        return True

    def _drop_artifact(self, tool: str | None) -> None:
        # Agents of the original report a tool that stopped at a gate as one that raised; the tool
        # is called anew once the gate opens. A denial is no error, and stays.
        last = next(reversed(self.shown()), None)
        if isinstance(last, _CallPart) and last.is_error and tool is not None:
            last.is_artifact = last.name == tool

    def _text(self, item_id: str) -> _TextPart:
        part = self.parts.setdefault(("text", item_id), _TextPart(item_id))
        assert isinstance(part, _TextPart)
        return part

    def _call(self, call_id: str) -> _CallPart:
        part = self.parts.setdefault(("call", call_id), _CallPart(call_id))
        assert isinstance(part, _CallPart)
        return part


def end_of(event: Event) -> tuple[End, str | None]:
    """Read a terminal event, as malformed as it may be, and the thread id if it has one."""
    response = event.to_dict().get("response")
    response = response if isinstance(response, dict) else {}
    response_id = _word(response, "id")
    if event.type == events.RESPONSE_COMPLETED:
        return End(Outcome.COMPLETED), response_id
    error = response.get("error")
    error = error if isinstance(error, dict) else {}
    return End(Outcome.FAILED, _word(error, "message"), _word(error, "code")), response_id


def as_text(output: Json) -> str:
    """Return a tool's output as a text."""
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


def _word(obj: dict[str, Any], key: str) -> str | None:
    value = obj.get(key)
    return value if isinstance(value, str) else None
