"""The bounded way from a run to its one reader, who may be slow or gone."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any, Final

DONE_LINE: Final = b"data: [DONE]\n\n"


class ReaderLostError(Exception):
    """Nobody takes what a catch-up offers."""


class Channel:
    """Frames on their way to a reader. A run never waits for its reader, except in a catch-up.

    Once the reader is detached, further events are dropped: a later catch-up renders them.
    """

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self._frames: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False
        self._gone = asyncio.Event()

    @property
    def detached(self) -> bool:
        """Whether the reader was let go."""
        return self._gone.is_set()

    def send(self, event: dict[str, Any]) -> None:
        """Put an event in line; a reader that is too far behind is detached instead."""
        self.send_frame(frame_of(event))

    def send_frame(self, frame: bytes) -> None:
        """Put a ready frame in line."""
        if self.detached or self._closed:
            return
        if self._is_full():
            self.detach()
            return
        self._frames.append(frame)
        self._waiting_bytes += len(frame)
        if self._is_half_full():
            self._room.clear()
        self._news.set()

    async def room(self, stall_s: float) -> None:
        """Wait until the reader has taken enough; raises ReaderLostError when it never does."""
        if not self._room.is_set():
            try:
                await asyncio.wait_for(self._room.wait(), stall_s)
            except TimeoutError:
                self.detach()
        if self.detached:
            raise ReaderLostError

    def wake(self) -> None:
        """Let a waiting catch-up look up from its reader."""
        self._room.set()

    def detach(self) -> None:
        """Let go of the reader: its connection must end without looking complete."""
        self._gone.set()
        self._frames.clear()
        self._waiting_bytes = 0
        self._room.set()
        self._news.set()

    async def gone(self) -> None:
        """Return once the reader is detached."""
        await self._gone.wait()

    def close(self) -> None:
        """Say that nothing more will come."""
        self._closed = True
        self._news.set()

    async def take(self, patience_s: float) -> bytes | None:
        """Return all waiting frames; empty after `patience_s` of silence; None at the end."""
        if not self._frames and not self._closed and not self.detached:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), patience_s)
            except TimeoutError:
                return b""
        if self.detached or not self._frames:
            return None
        chunk = b"".join(self._frames)
        self._frames.clear()
        self._waiting_bytes = 0
        self._room.set()
        return chunk

    def _is_full(self) -> bool:
        return len(self._frames) >= self._max_events or self._waiting_bytes >= self._max_bytes

    def _is_half_full(self) -> bool:
        return (
            2 * len(self._frames) >= self._max_events or 2 * self._waiting_bytes >= self._max_bytes
        )


def frame_of(event: dict[str, Any]) -> bytes:
    """Write one event as one SSE frame.

    In ASCII: many readers split lines at U+2028 and its like, and half a surrogate pair, which a
    model may well produce, has no UTF-8.
    """
    return b"data: " + json.dumps(event, separators=(",", ":")).encode("ascii") + b"\n\n"
