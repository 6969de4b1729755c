"""A turn's log as server-sent events for a browser."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from nats.js import JetStreamContext

from vystak_turns_client.frames import KEEP_ALIVE, Frame, encode

__all__ = ["KEEP_ALIVE", "KEEP_ALIVE_S", "Frame", "encode", "frames"]

KEEP_ALIVE_S = 15.0


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
    raise NotImplementedError
    yield KEEP_ALIVE
