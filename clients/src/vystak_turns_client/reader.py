"""Following a turn from a cursor to its terminal event, through restarts of the broker.

nats-py's own ordered consumer starts again from the first message after a loss and only logs when
that fails, so this one is built on an ephemeral pull consumer. It is opened anew right after the
last message that arrived whenever that is in doubt: the connection was re-made, a heartbeat is
missing, a delivery number was skipped, the broker says that the consumer is gone. So nothing is
left out and nothing comes twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from nats.js import JetStreamContext

from vystak_turns_client.consumer import Delivery, Source
from vystak_turns_client.retained import LoggedMessage
from vystak_turns_rpc.events import is_terminal, parse_turn_message

__all__ = ["READ_ALL_SILENCE_S", "LoggedMessage", "follow", "read_all"]

READ_ALL_SILENCE_S: Final = 10.0


async def follow(
    js: JetStreamContext,
    subject: str,
    *,
    after_seq: int = -1,
    after_stream_seq: int = 0,
    idle_s: float | None = None,
) -> AsyncGenerator[LoggedMessage, None]:
    """Yield a turn's messages in order, up to and with the terminal event, then end.

    The messages up to seq `after_seq` are left out; reading starts behind `after_stream_seq`, so
    that a reader who kept it need not fetch the beginning again. Only `after_stream_seq` is exact
    in a log whose writer may use a seq twice, as the original's does after a crash. Messages that
    are no turn messages are skipped. Leave the loop early within `contextlib.aclosing`, so that the
    subscription ends. Raises Idle after `idle_s` seconds without any message (None: waits for
    ever), StreamNotFound if there is none at the start, NotConnected once the connection is closed
    for good, ValueError for what is no turn subject.
    """
    source = Source(js, subject, after_stream_seq, idle_s)
    has_begun = False
    try:
        while True:
            message = _decoded(await source.next())
            if message is None:
                continue
            has_begun = has_begun or message.seq > after_seq
            if has_begun:
                yield message
            if is_terminal(str(message.event.get("type"))):
                return
    finally:
        await source.aclose()


async def read_all(
    js: JetStreamContext, subject: str, *, after_stream_seq: int = 0
) -> list[LoggedMessage]:
    """Return the messages that the log holds now behind a place, without waiting for more.

    Raises what `follow` raises; Idle means that the broker stopped delivering half-way.
    """
    messages: list[LoggedMessage] = []
    async with aclosing(Source(js, subject, after_stream_seq, READ_ALL_SILENCE_S)) as source:
        while await source.has_more():
            message = _decoded(await source.next())
            if message is not None:
                messages.append(message)
    return messages


def _decoded(delivery: Delivery) -> LoggedMessage | None:
    try:
        message = parse_turn_message(delivery.data)
    except ValueError:
        return None
    return LoggedMessage(message.seq, message.event, delivery.stream_seq)
