"""JSON-RPC requests on the agents' tasks subjects.

The callback of a subscription is awaited one message at a time, so it only takes a slot and hands
the request to a task; while no slot is free, requests wait in the subscription's queue.

The reply subject comes from the caller, and we may publish on turn subjects: a caller who named one
would have our answer stored in a turn's log. So a request whose reply subject is no inbox is not
carried out at all (R10, R11).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error

_log = structlog.get_logger(__name__)

RETRY_S: Final = 1.0
UNSUBSCRIBE_TIMEOUT_S: Final = 2.0
FINISH_TIMEOUT_S: Final = 5.0

INBOX: Final = "_INBOX"
# What a server puts in place of an inbox when the caller is in another account.
ACCOUNT_INBOX: Final = "_R_"

Handle: TypeAlias = Callable[[str, bytes], Awaitable[bytes | None]]
"""Takes an agent's name and a request, returns the reply; `None`: there is none."""


class Connection(Protocol):
    """What is needed of the broker."""

    @property
    def client(self) -> Client:
        """The connection, while there is one."""
        ...

    async def wait_connected(self) -> None:
        """Wait until there is a connection."""
        ...


class State(StrEnum):
    """How a subscription stands."""

    ON = "on"
    WAITING = "waiting"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Tasks:
    """A subject on which an agent's turns are asked for, and the group that its replicas share."""

    agent: str
    subject: str
    queue_group: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """`in_hand`: requests carried out side by side; `waiting`: queued for one subscription."""

    in_hand: int
    waiting: int


class RpcIntake:
    """Keeps one subscription for each subject and answers what comes in."""

    def __init__(
        self,
        connection: Connection,
        tasks: Sequence[Tasks],
        handle: Handle,
        inbox_prefix: str,
        bounds: Bounds,
    ) -> None:
        self._connection = connection
        self._tasks = tuple(tasks)
        self._handle = handle
        self._inbox_prefix = inbox_prefix
        self._bounds = bounds
        self._slots = asyncio.Semaphore(bounds.in_hand)
        self._states = {one.subject: State.WAITING for one in tasks}
        self._lost = {one.subject: asyncio.Event() for one in tasks}
        self._live: dict[str, Subscription] = {}
        self._keepers: set[asyncio.Task[None]] = set()
        self._requests: set[asyncio.Task[None]] = set()

    def state(self, subject: str) -> State:
        """Tell how a subject's subscription stands."""
        state = self._states[subject]
        if state is State.ON and not self._connection.client.is_connected:
            return State.WAITING
        return state

    def start(self) -> None:
        """Begin to subscribe; it happens as soon as there is a connection."""
        for one in self._tasks:
            keeper = asyncio.create_task(self._keep(one), name=f"subscription {one.subject}")
            self._keepers.add(keeper)

    async def stop(self) -> None:
        """Take no more requests, finish those in hand and send their replies (R12)."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(self._drain(one) for one in self._live.values()))
        if self._requests:
            _, late = await asyncio.wait(self._requests, timeout=FINISH_TIMEOUT_S)
            for request in late:
                request.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def refused(self, words: str) -> None:
        """Hear of a refusal (in lower case); if it is about a subscription, try it again later."""
        for one in self._tasks:
            if "subscription" in words and f'"{one.subject.lower()}"' in words:
                self._states[one.subject] = State.REFUSED
                self._lost[one.subject].set()

    async def _keep(self, one: Tasks) -> None:
        lost = self._lost[one.subject]
        while True:
            await self._connection.wait_connected()
            lost.clear()
            try:
                await self._subscribe(one)
            except (Error, TimeoutError, OSError) as error:
                _log.warning("cannot subscribe, trying on", subject=one.subject, reason=str(error))
            else:
                await lost.wait()
            was_on = await self._unsubscribe(one)
            await asyncio.sleep(0 if was_on else RETRY_S)

    async def _subscribe(self, one: Tasks) -> None:
        client = self._connection.client
        self._live[one.subject] = await client.subscribe(
            one.subject,
            queue=one.queue_group,
            cb=functools.partial(self._take, one.agent),
            pending_msgs_limit=self._bounds.waiting,
        )
        # A refusal arrives before the answer to the second flush; the first one may overtake the
        # subscription, which nats-py still holds back, and has it sent.
        await client.flush()
        await client.flush()
        if not self._lost[one.subject].is_set():
            self._states[one.subject] = State.ON
            _log.info("taking requests", agent=one.agent, subject=one.subject)

    async def _unsubscribe(self, one: Tasks) -> bool:
        was_on = self._states[one.subject] is State.ON
        if was_on:
            self._states[one.subject] = State.WAITING
        subscription = self._live.pop(one.subject, None)
        if subscription is not None:
            with contextlib.suppress(Error, OSError):
                await subscription.unsubscribe()
        return was_on

    async def _drain(self, subscription: Subscription) -> None:
        """Unsubscribe, and hand over what the broker had sent already."""
        if not self._connection.client.is_connected:
            return
        with contextlib.suppress(Error, OSError, TimeoutError):
            async with asyncio.timeout(UNSUBSCRIBE_TIMEOUT_S):
                await subscription.drain()  # type: ignore[no-untyped-call]

    async def _take(self, agent: str, message: Msg) -> None:
        if message.reply and not is_inbox(message.reply, self._inbox_prefix):
            hint = "the caller must name an inbox; the request was not carried out"
            _log.warning("refused a reply subject", agent=agent, reply=message.reply, cure=hint)
            return
        await self._slots.acquire()
        request = asyncio.create_task(self._answer(agent, message))
        self._requests.add(request)
        request.add_done_callback(self._finished)

    def _finished(self, request: asyncio.Task[None]) -> None:
        self._requests.discard(request)
        self._slots.release()

    async def _answer(self, agent: str, message: Msg) -> None:
        reply = await self._handle(agent, message.data)
        if reply is None or not message.reply:
            return
        try:
            await self._connection.client.publish(message.reply, reply)
        except Error as error:
            # The caller asks again after its timeout: every method may be repeated.
            _log.warning("a reply could not be sent", agent=agent, reason=str(error))


def is_inbox(reply: str, own_prefix: str) -> bool:
    """Tell whether a reply subject can only reach a waiting caller.

    Our own inbox is none unless it has the prefix that everybody uses: answers in it are the
    broker's.
    """
    tokens = reply.split(".")
    is_literal = all(tokens) and "*" not in tokens and ">" not in tokens
    if not is_literal or len(tokens) == 1:
        return False
    if tokens[0] == own_prefix:
        return own_prefix == INBOX
    return tokens[0].startswith(INBOX) or tokens[0] == ACCOUNT_INBOX
