"""A turn's log as server-sent events for a browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, TypeVar

from nats.js import JetStreamContext

from vystak_turns_client.errors import Idle
from vystak_turns_client.frames import KEEP_ALIVE, Frame, FrameFeed, encode
from vystak_turns_client.reader import LoggedMessage, follow, read_all

__all__ = ["KEEP_ALIVE", "KEEP_ALIVE_S", "Frame", "encode", "frames"]

KEEP_ALIVE_S: Final = 15.0

T = TypeVar("T")


async def frames(
    js: JetStreamContext,
    subject: str,
    *,
    last_event_id: str | None = None,
    title: str | None = None,
    keep_alive_s: float = KEEP_ALIVE_S,
) -> AsyncGenerator[Frame, None]:
    """Yield a turn's frames to its `done` or `error`, from a browser's Last-Event-ID on.

    Nothing is left out and nothing comes twice; a browser that a rewind or the log's age has
    overtaken gets one `reset` and then the whole retained part. `KEEP_ALIVE` is yielded after
    every `keep_alive_s` seconds of silence, which is never an error. `title` goes into `done`.
    Leave the loop early within `contextlib.aclosing`. Raises StreamNotFound, NotConnected once the
    connection is closed for good, and ValueError for what is no turn subject.
    """
    feed = FrameFeed(subject.rsplit(".", 1)[-1], last_event_id, title)
    async with aclosing(_or_none_after(keep_alive_s, _batches(js, subject))) as batches:
        async for batch in batches:
            if batch is None:
                yield KEEP_ALIVE
                continue
            for frame in feed.feed(batch):
                yield frame
            if feed.ended:
                return


async def _batches(js: JetStreamContext, subject: str) -> AsyncGenerator[list[LoggedMessage], None]:
    """Yield all that the log holds, then each message as it comes."""
    held = await _held(js, subject)
    yield held
    after = held[-1].stream_seq if held else 0
    async with aclosing(follow(js, subject, after_stream_seq=after)) as messages:
        async for message in messages:
            yield [message]


async def _held(js: JetStreamContext, subject: str) -> list[LoggedMessage]:
    while True:
        try:
            return await read_all(js, subject)
        except Idle:
            # The broker is away or stopped half-way: it is asked again, the browser waits.
            continue


async def _or_none_after(
    silence_s: float, source: AsyncGenerator[T, None]
) -> AsyncGenerator[T | None, None]:
    """Yield what the source yields, and None whenever that takes longer."""
    coming = asyncio.ensure_future(anext(source))
    try:
        while True:
            await asyncio.wait({coming}, timeout=silence_s)
            if not coming.done():
                yield None
                continue
            try:
                item = coming.result()
            except StopAsyncIteration:
                return
            yield item
            coming = asyncio.ensure_future(anext(source))
    finally:
        coming.cancel()
        await asyncio.wait({coming})
        if not coming.cancelled():
            coming.exception()
        await source.aclose()
