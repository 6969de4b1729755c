"""Turn logs on JetStream, as the persister reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from nats.js import JetStreamContext

from vystak_turns_client.errors import Idle, StreamNotFound
from vystak_turns_client.reader import LoggedMessage, follow, read_all
from vystak_turns_rpc.subjects import base_of_turn_subject

MISSING_RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class NatsLog:
    """The `Log` of a connection that the caller owns."""

    js: JetStreamContext

    async def follow(
        self, subject: str, after_stream_seq: int, idle_s: float
    ) -> AsyncGenerator[LoggedMessage, None]:
        """Yield what `reader.follow` does; a stream that is missing is a silent one.

        Raises Idle, NotConnected once the connection is closed for good, and ValueError for what is
        no turn subject.
        """
        base_of_turn_subject(subject)
        now = asyncio.get_running_loop().time
        deadline_s = now() + idle_s
        while True:
            left_s = deadline_s - now()
            if left_s <= 0:
                raise Idle(subject, idle_s)
            reading = follow(self.js, subject, after_stream_seq=after_stream_seq, idle_s=left_s)
            try:
                async with aclosing(reading) as messages:
                    async for message in messages:
                        yield message
            except StreamNotFound:
                await asyncio.sleep(min(MISSING_RETRY_S, left_s))
            else:
                return

    async def rest(self, subject: str, after_stream_seq: int) -> list[LoggedMessage]:
        """Return what `reader.read_all` does."""
        return await read_all(self.js, subject, after_stream_seq=after_stream_seq)
