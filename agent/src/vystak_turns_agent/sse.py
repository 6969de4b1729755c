"""A run's events as an HTTP answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from vystak_turns_agent.channel import Channel

HEARTBEAT: Final = b": keep-alive\n\n"


class EventStream(Response):
    """Streams a channel until it ends, with a comment line every `heartbeat_s`.

    Losing the reader detaches the channel and nothing else: the run goes on (R4). A reader that
    was detached for being slow has its connection cut, so that it cannot take what it got for
    the whole.
    """

    media_type = "text/event-stream"

    def __init__(self, channel: Channel, heartbeat_s: float, clock: Callable[[], float]) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._channel = channel
        self._heartbeat_s = heartbeat_s
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answer the request."""
        sender = asyncio.create_task(self._send_all(send))
        others = [
            asyncio.create_task(self._watch(receive)),
            asyncio.create_task(self._channel.gone()),  # also frees a sender that is stuck
        ]
        try:
            await asyncio.wait([sender, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sender, *others):
                task.cancel()
            results = await asyncio.gather(sender, *others, return_exceptions=True)
        if isinstance(results[0], OSError):  # the server's word for a reader that is gone
            self._channel.detach()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        beat_at = self._clock() + self._heartbeat_s
        while True:
            chunk = await self._channel.take(max(0.0, beat_at - self._clock()))
            if chunk is None:
                break
            if self._clock() >= beat_at:
                chunk = HEARTBEAT + chunk
                beat_at = self._clock() + self._heartbeat_s
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if not self._channel.detached:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._channel.detach()
