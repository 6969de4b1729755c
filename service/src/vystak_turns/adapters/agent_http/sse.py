"""Server-sent events from raw bytes, each event's data passed through as it came."""

from __future__ import annotations


class EventTooLargeError(Exception):
    """The stream sends an event larger than the limit."""


class SseSplitter:
    """Cuts a byte stream into the data of its events.

    `heartbeat_seen` tells whether the stream has sent a comment line.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = b""
        self._data: list[bytes] = []
        self._size = 0
        self.heartbeat_seen = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the data of the events that are complete now.

        Raises:
            EventTooLargeError: an event, or a line, is larger than the limit.

        """
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        events: list[bytes] = []
        for line in lines:
            self._take(line.removesuffix(b"\r"), events)
        if len(self._buffer) + self._size > self._max_bytes:
            raise EventTooLargeError
        return events

    def rest(self) -> list[bytes]:
        """Return the data of an event that the stream's end has cut short of its blank line."""
        events = self.feed(b"\n")
        self._take(b"", events)
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if line.startswith(b"data:"):
            data = line[6:] if line[5:6] == b" " else line[5:]
            self._size += len(data)
            if self._size > self._max_bytes:
                raise EventTooLargeError
            self._data.append(data)
        elif not line:
            if self._data:
                events.append(b"\n".join(self._data))
            self._data, self._size = [], 0
        elif line.startswith(b":"):
            self.heartbeat_seen = True
