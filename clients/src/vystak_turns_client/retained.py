"""Which events of a turn log count: those that no rewind has taken back. Pure.

The order of the log is what counts. Our turn control uses no seq twice (R2), but others do after a
crash, for a rewind or for the first event after a park: such a message is taken as well, and a
rewind always. Only the very same event under the same seq is a repeat, and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from vystak_turns_rpc import events
from vystak_turns_rpc.events import Event, TurnMessage


@dataclass(frozen=True, slots=True)
class LoggedMessage(TurnMessage):
    """A message of a turn log and its place in the stream (`stream_seq`, counted from 1)."""

    stream_seq: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A message that counts, and its event."""

    message: TurnMessage
    event: Event


class Retained:
    """What counts after the messages taken so far."""

    def __init__(self) -> None:
        """Start with nothing taken."""
        self.entries: list[Entry] = []
        self.cursor = -1
        self.rewinds = 0
        self.ended = False

    def take(self, message: TurnMessage) -> Event | None:
        """Take the next message; return its event, or None if that changes nothing.

        O(1), but O(entries) for a rewind and for a seq that was seen.
        """
        if self.ended:
            return None
        event = events.parse_event(message.event)
        if isinstance(event, events.TurnRewind):
            self._rewind(event.to_seq)
        elif self._has(message):
            return None
        elif events.is_terminal(event.type):
            self.ended = True
        self.cursor = message.seq
        if isinstance(event, events.TurnRewind):
            return event
        if isinstance(event, events.UnknownEvent) and not self.ended:
            return None
        self.entries.append(Entry(message, event))
        return event

    def _rewind(self, to_seq: int) -> None:
        self.rewinds += 1
        self.entries = [entry for entry in self.entries if entry.message.seq <= to_seq]

    def _has(self, message: TurnMessage) -> bool:
        if message.seq > self.cursor:
            return False
        return any(
            entry.message.seq == message.seq and entry.message.event == message.event
            for entry in self.entries
        )
