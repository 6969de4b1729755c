"""The messages of one subject in stream order, from a place on, without gaps and repeats."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from nats import errors as nats_errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import BadRequestError, NotFoundError

from vystak_turns_client.errors import Idle, NotConnected, StreamNotFound
from vystak_turns_rpc.subjects import base_of_turn_subject, stream_name

BATCH: Final = 256
PULL_S: Final = 30.0
HEARTBEAT_S: Final = 5.0
# Two heartbeats and a half: one may be late.
LOST_AFTER_S: Final = 12.5
# How soon a re-made connection is noticed; a look at a counter, no traffic.
LOOK_S: Final = 0.5
RETRY_S: Final = 0.25
# Short, because a request lost in a restart is best repeated soon.
API_TIMEOUT_S: Final = 2.0
# The broker removes a consumer by itself when its reader vanished.
INACTIVE_S: Final = 60.0

_NS_PER_S: Final = 1_000_000_000
_STATUS: Final = "Status"
_HEARTBEAT: Final = "100"
# The pull expired, or found nothing: ask again.
_PULL_ENDED: Final = ("404", "408")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message: its body and its place in the stream."""

    data: bytes
    stream_seq: int


class Source:
    """Reads one turn subject; the caller owns the connection and ends with `aclose`."""

    def __init__(
        self, js: JetStreamContext, subject: str, after_stream_seq: int, idle_s: float | None
    ) -> None:
        """Nothing is asked of the broker yet; raises ValueError for no turn subject."""
        self._js = js
        self._subject = subject
        self._stream = stream_name(base_of_turn_subject(subject))
        self._last = after_stream_seq
        self._idle_s = idle_s
        self._consumer: _Consumer | None = None
        self._was_open = False

    async def next(self) -> Delivery:
        """Return the next message.

        Raises Idle, StreamNotFound, and NotConnected once the connection is closed for good.
        """
        deadline = self._deadline()
        while True:
            wait_s = self._remaining(deadline)
            consumer = self._consumer
            if consumer is None:
                await self._try_open(wait_s)
                continue
            message = await consumer.receive(min(wait_s, LOOK_S))
            if message is not None and (delivery := self._accepted(consumer, message)):
                return delivery
            if consumer.is_lost():
                await self._drop()

    async def has_more(self) -> bool:
        """Tell whether the subject holds messages behind the last one returned."""
        deadline = self._deadline()
        while self._consumer is None:
            await self._try_open(self._remaining(deadline))
        return self._consumer.pending > 0

    async def aclose(self) -> None:
        """End the subscription and remove the consumer."""
        await self._drop()

    def _accepted(self, consumer: _Consumer, message: Msg) -> Delivery | None:
        sequence = message.metadata.sequence
        if not consumer.take(sequence.consumer, message.metadata.num_pending):
            return None
        if sequence.stream <= self._last:
            return None
        self._last = sequence.stream
        return Delivery(message.data, sequence.stream)

    async def _try_open(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(min(wait_s, API_TIMEOUT_S)):
                self._consumer = await self._open()
            self._was_open = True
        except NotFoundError:
            await self._stream_is_missing(wait_s)
        except nats_errors.ConnectionClosedError:
            raise NotConnected("the connection to the broker is closed") from None
        except BadRequestError:
            raise
        except (TimeoutError, nats_errors.Error):
            # The broker is away or busy: it may come back, the idle time bounds the wait.
            await asyncio.sleep(min(wait_s, RETRY_S))

    async def _stream_is_missing(self, wait_s: float) -> None:
        # One that we read from is made again by turn control, and the turn's log repaired.
        if not self._was_open:
            raise StreamNotFound(f"there is no stream {self._stream}")
        await asyncio.sleep(min(wait_s, RETRY_S))

    async def _open(self) -> _Consumer:
        nc, _ = _inside(self._js)
        if not nc.is_connected and not nc.is_closed:
            raise TimeoutError
        if self._last > 0:
            await self._start_over_if_stream_is_new()
        return await _Consumer.open(self._js, self._stream, self._subject, self._last)

    async def _start_over_if_stream_is_new(self) -> None:
        # A stream that lost its end counts from lower numbers: ours would wait for them for long.
        state = (await self._js.stream_info(self._stream)).state
        if state.last_seq < self._last:
            self._last = 0

    async def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.aclose()

    def _deadline(self) -> float | None:
        return None if self._idle_s is None else _now() + self._idle_s

    def _remaining(self, deadline: float | None) -> float:
        if deadline is None or self._idle_s is None:
            return API_TIMEOUT_S
        remaining = deadline - _now()
        if remaining <= 0:
            raise Idle(self._subject, self._idle_s)
        return remaining


@dataclass(slots=True)
class _Consumer:
    nc: Client
    subscription: Subscription
    inbox: str
    api: str
    stream: str
    name: str
    reconnects: int
    heard_at: float
    pending: int = 0
    received: int = 0
    pulled: int = 0
    broken: bool = False

    @classmethod
    async def open(cls, js: JetStreamContext, stream: str, subject: str, after: int) -> _Consumer:
        nc, api = _inside(js)
        inbox = nc.new_inbox()
        reconnects = nc.stats["reconnects"]
        subscription = await nc.subscribe(inbox)
        # The end of an inbox is unique, and a named consumer can be allowed by its name.
        name = inbox.rsplit(".", 1)[-1]
        consumer = cls(nc, subscription, inbox, api, stream, name, reconnects, _now())
        try:
            info = await js.add_consumer(stream, _config(name, subject, after))
        except BaseException:
            await consumer.aclose()
            raise
        consumer.heard_at = _now()
        consumer.pending = info.num_pending or 0
        return consumer

    async def receive(self, timeout_s: float) -> Msg | None:
        """Return the next real message, or None after `timeout_s` or a word from the broker."""
        if self.pulled <= 0:
            await self._pull()
        try:
            message = await self.subscription.next_msg(timeout_s)
        except TimeoutError:
            return None
        except (nats_errors.ConnectionClosedError, nats_errors.BadSubscriptionError):
            raise NotConnected("the connection to the broker is closed") from None
        self.heard_at = _now()
        status = (message.headers or {}).get(_STATUS)
        if status is None:
            return message
        if status in _PULL_ENDED:
            self.pulled = 0
        elif status != _HEARTBEAT:
            self.broken = True
        return None

    def take(self, delivery_seq: int, pending: int) -> bool:
        """Count a message; False when one before it is missing."""
        self.broken = self.broken or delivery_seq != self.received + 1
        if self.broken:
            return False
        self.received = delivery_seq
        self.pending = pending
        self.pulled -= 1
        return True

    def is_lost(self) -> bool:
        """Tell whether messages may have gone astray, so that only a new consumer is sure."""
        remade = self.nc.stats["reconnects"] != self.reconnects
        return self.broken or remade or _now() - self.heard_at > LOST_AFTER_S

    async def aclose(self) -> None:
        with suppress(nats_errors.Error):
            await self.subscription.unsubscribe()
        # Nobody waits for the answer: if the broker is away, its inactivity limit does the same.
        if self.nc.is_connected:
            with suppress(nats_errors.Error):
                await self.nc.publish(f"{self.api}.CONSUMER.DELETE.{self.stream}.{self.name}")

    async def _pull(self) -> None:
        wanted = {
            "batch": BATCH,
            "expires": int(PULL_S * _NS_PER_S),
            "idle_heartbeat": int(HEARTBEAT_S * _NS_PER_S),
        }
        subject = f"{self.api}.CONSUMER.MSG.NEXT.{self.stream}.{self.name}"
        try:
            await self.nc.publish(subject, json.dumps(wanted).encode(), self.inbox)
        except nats_errors.ConnectionClosedError:
            raise NotConnected("the connection to the broker is closed") from None
        self.pulled = BATCH


def _config(name: str, subject: str, after: int) -> ConsumerConfig:
    return ConsumerConfig(
        name=name,
        filter_subject=subject,
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=after + 1,
        ack_policy=AckPolicy.NONE,
        max_deliver=1,
        mem_storage=True,
        num_replicas=1,
        inactive_threshold=INACTIVE_S,
    )


def _inside(js: JetStreamContext) -> tuple[Client, str]:
    # nats-py gives no way from a context to its connection and prefix but these.
    return js._nc, js._prefix  # noqa: SLF001


def _now() -> float:
    return asyncio.get_running_loop().time()
