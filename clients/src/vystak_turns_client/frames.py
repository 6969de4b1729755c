"""From the messages of a turn log to the frames that a browser gets. Pure.

The frames of a turn are one sequence that follows from its log: a message gives at most one frame,
a rewind gives a `reset` and then every retained frame again. A frame's id is its place in that
sequence, so a browser that comes back goes on right behind it. It is moved forward to a `reset`
where the log has gone past it: to the last rewind, if that is behind its place; to the beginning of
what is retained, if messages that it has not seen are gone with the log's age.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

from vystak_turns_client.fold import Outcome, as_text, end_of
from vystak_turns_client.questions import approval_id, approval_input, tool_of
from vystak_turns_client.retained import LoggedMessage, Retained
from vystak_turns_rpc import events
from vystak_turns_rpc.events import Event


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event.

    `data` has `type`, `turn_id`, `seq` and the type's own fields:

    - `delta`: text, item_id
    - `tool_call`: tool_call_id, tool_name, arguments (a JSON text)
    - `tool_result`: tool_call_id, output, is_error
    - `approval`: tool_call_id (`approval:<tool>`), tool_name, input (an object), and payload (the
      question as it is), park_generation, interrupt_id (None from the original's turn control),
      replaces (None, or the tool_call_id of the call that only stopped at the gate: drop it)
    - `reset`: drop everything shown of the turn; what is retained follows, with its original seqs
    - `done`: response_id, title
    - `error`: message, code

    `id` is what the browser sends back as Last-Event-ID.
    """

    type: str
    data: dict[str, Any]
    id: str


KEEP_ALIVE: Final = Frame("", {}, "")
"""No event: a comment line that keeps the connection open."""

_ID: Final = re.compile(r"(\d{1,18})\.(\d{1,18})\.(\d{1,18})", re.ASCII)


def encode(frame: Frame) -> bytes:
    """Return the frame as bytes of `text/event-stream`; no `event:` line, the type is in data."""
    if frame == KEEP_ALIVE:
        return b": keep-alive\n\n"
    data = json.dumps(frame.data, ensure_ascii=True, separators=(",", ":"))
    return f"id: {frame.id}\ndata: {data}\n\n".encode()


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a turn's frames.

    `at` and `seq` are stream_seq and seq of the message that gave the frame; `of` is the stream_seq
    of the message that it shows: another one where a rewind shows it again, 0 for a `reset`.
    """

    at: int
    seq: int
    of: int

    @classmethod
    def parse(cls, last_event_id: str | None) -> Self | None:
        """Read a browser's Last-Event-ID; None if it was shown nothing yet."""
        if not last_event_id:
            return None
        match = _ID.fullmatch(last_event_id)
        if match is None:
            # Shown something, nobody knows what: no message has this place, so all comes again.
            return cls(at=0, seq=0, of=1)
        position = cls(*(int(number) for number in match.groups()))
        return None if position == _NOTHING else position

    def __str__(self) -> str:
        return f"{self.at}.{self.seq}.{self.of}"


_NOTHING: Final = Position(0, 0, 0)

_Placed: TypeAlias = tuple[Position, Frame]
_Given: TypeAlias = tuple[LoggedMessage, list[_Placed]]


class FrameFeed:
    """The frames of one turn for one browser, from its place on."""

    def __init__(
        self, turn_id: str, last_event_id: str | None = None, title: str | None = None
    ) -> None:
        """`title` goes into `done`."""
        self._cursor = Position.parse(last_event_id)
        self._retained = Retained()
        self._turn_id = turn_id
        self._writer = _Writer(title)
        self._has_begun = False

    @property
    def ended(self) -> bool:
        """Whether the terminal event was read: nothing follows."""
        return self._retained.ended

    def feed(self, messages: Sequence[LoggedMessage]) -> list[Frame]:
        """Take the next messages: all that the log holds at first, then each as it comes."""
        # What follows the end was written by mistake, and nobody has seen it.
        given = [(message, self._take(message)) for message in messages if not self.ended]
        if not given:
            return []
        if not self._has_begun:
            self._has_begun = True
            return self._caught_up(given)
        return _joined(given)

    def _caught_up(self, given: list[_Given]) -> list[Frame]:
        rewinds = [index for index, (message, _) in enumerate(given) if _is_rewind(message)]
        last_rewind = rewinds[-1] if rewinds else 0
        everything = _joined(given[last_rewind:])
        cursor = self._cursor
        if cursor is None or (rewinds and cursor.at < given[last_rewind][0].stream_seq):
            return everything
        behind = _behind(cursor, given)
        if behind is not None:
            return behind
        # After a rewind everything begins with a reset already.
        first_seq = given[0][0].seq
        return everything if rewinds else [self._reset(first_seq, _NOTHING), *everything]

    def _take(self, message: LoggedMessage) -> list[_Placed]:
        event = self._retained.take(message)
        if event is None:
            return []
        if isinstance(event, events.TurnRewind):
            return self._shown_again(message)
        return self._placed(message, message, event)

    def _shown_again(self, rewind: LoggedMessage) -> list[_Placed]:
        self._writer = _Writer(self._writer.title)
        place = Position(rewind.stream_seq, rewind.seq, 0)
        placed = [(place, self._reset(rewind.seq, place))]
        for entry in self._retained.entries:
            assert isinstance(entry.message, LoggedMessage)
            placed += self._placed(rewind, entry.message, entry.event)
        return placed

    def _placed(self, at: LoggedMessage, of: LoggedMessage, event: Event) -> list[_Placed]:
        fields = self._writer.fields(event)
        if fields is None:
            return []
        place = Position(at.stream_seq, at.seq, of.stream_seq)
        return [(place, self._frame(fields, of.seq, place))]

    def _reset(self, seq: int, place: Position) -> Frame:
        return self._frame({"type": "reset"}, seq, place)

    def _frame(self, fields: dict[str, Any], seq: int, place: Position) -> Frame:
        data = {**fields, "turn_id": self._turn_id, "seq": seq}
        return Frame(fields["type"], data, str(place))


def _behind(cursor: Position, given: list[_Given]) -> list[Frame] | None:
    """Return the frames behind the cursor; None if something between them may be gone."""
    for index, (message, placed) in enumerate(given):
        if (message.stream_seq, message.seq) == (cursor.at, cursor.seq):
            places = [place for place, _ in placed]
            if cursor not in places:
                return None
            rest = [frame for _, frame in placed[places.index(cursor) + 1 :]]
            return rest + _joined(given[index + 1 :])
    first = given[0][0]
    # The place itself may be gone with the log's age, and yet nothing behind it.
    is_next = first.stream_seq > cursor.at == cursor.of and first.seq == cursor.seq + 1
    return _joined(given) if is_next else None


def _joined(given: Iterable[_Given]) -> list[Frame]:
    return [frame for _, placed in given for _, frame in placed]


def _is_rewind(message: LoggedMessage) -> bool:
    return isinstance(events.parse_event(message.event), events.TurnRewind)


class _Writer:
    """Writes the frames of events in order; what it remembers is of these events alone."""

    def __init__(self, title: str | None) -> None:
        self.title = title
        self._tools: dict[str, str] = {}
        self._last_error: str | None = None

    def fields(self, event: Event) -> dict[str, Any] | None:
        fields = self._fields(event)
        if fields is not None:
            raised = fields["type"] == "tool_result" and fields["is_error"]
            self._last_error = fields["tool_call_id"] if raised else None
        return fields

    def _fields(self, event: Event) -> dict[str, Any] | None:
        match event:
            case events.TextDelta():
                return {"type": "delta", "text": event.delta, "item_id": event.item_id}
            case events.ItemAdded(item=events.FunctionCallItem() as item):
                self._tools[item.call_id] = item.name
                return None
            case events.ArgumentsDone():
                return {
                    "type": "tool_call",
                    "tool_call_id": event.call_id,
                    "tool_name": self._tools.get(event.call_id, ""),
                    "arguments": event.arguments,
                }
            case events.ItemAdded(item=events.FunctionCallOutputItem() as item):
                return {
                    "type": "tool_result",
                    "tool_call_id": item.call_id,
                    "output": as_text(item.output),
                    "is_error": item.error,
                }
            case events.ApprovalRequested():
                return self._approval(event)
            case _ if events.is_terminal(event.type):
                return self._end(event)
            case _:
                return None

    def _approval(self, event: events.ApprovalRequested) -> dict[str, Any]:
        stopped = self._last_error
        tool = tool_of(event.payload)
        is_gate = stopped is not None and tool is not None and self._tools.get(stopped) == tool
        return {
            "type": "approval",
            "tool_call_id": approval_id(event.payload),
            "tool_name": tool or "",
            "input": approval_input(event.payload),
            "payload": event.payload,
            "park_generation": event.park_generation,
            "interrupt_id": event.interrupt_id,
            "replaces": stopped if is_gate else None,
        }

    def _end(self, event: Event) -> dict[str, Any]:
        end, response_id = end_of(event)
        if end.outcome is Outcome.COMPLETED:
            return {"type": "done", "response_id": response_id, "title": self.title}
        return {"type": "error", "message": end.message or "the turn failed", "code": end.code}
