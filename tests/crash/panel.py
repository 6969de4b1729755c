"""A crowd of panels: each dispatches its turns, reads, decides, polls, and notes all it sees."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from nats.aio.client import Client

from tests.crash.flows import Flow, Step
from vystak_turns_client.client import ASK_TIMEOUT_S, TurnsClient
from vystak_turns_client.errors import ServiceUnavailable
from vystak_turns_client.reader import LoggedMessage, follow
from vystak_turns_rpc.errors import ErrorCode, RpcError
from vystak_turns_rpc.methods import TurnStatusResult
from vystak_turns_rpc.vocabulary import WireStatus

T = TypeVar("T")

_POLL_S: Final = 1.0
_AGAIN_S: Final = 0.3
_THINKS_S: Final = 1.0
# Codes that say "send it again".
_LATER: Final = (ErrorCode.SHUTTING_DOWN, ErrorCode.JOURNAL_UNAVAILABLE)
ENDED: Final = (WireStatus.DONE, WireStatus.FAILED)


@dataclass(frozen=True, slots=True)
class Poll:
    """One question of where the turn stands. `answer`: `None` for none."""

    asked_at: float
    took_s: float
    answer: TurnStatusResult | None


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision. `acknowledged`: by its own reply; `None`: no reply came."""

    generation: int
    value: str
    acknowledged: bool | None


@dataclass(slots=True)
class Seen:
    """All that a panel saw of one turn; what it saw that must not be is in `wrong`."""

    tag: str
    step: Step
    turn_id: str
    subject: str
    request: Mapping[str, Any]
    acknowledged_at: float = 0.0
    asked_twice: bool = False
    cancel_acknowledged: bool = False
    polls: list[Poll] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    read: list[LoggedMessage] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    finished: bool = False

    @property
    def last(self) -> TurnStatusResult | None:
        """The newest answer."""
        answers = [poll.answer for poll in self.polls if poll.answer is not None]
        return answers[-1] if answers else None


AtPark = Callable[[Seen, TurnStatusResult], Awaitable[None]]


@dataclass(slots=True)
class Panel:
    """What the panels of a crowd share. `at_park` looks at a turn that waits for a decision."""

    connection: Client
    seed: int
    at_park: AtPark
    seen: list[Seen] = field(default_factory=list)

    async def converse(self, flow: Flow, number: int) -> None:
        """Carry out a flow: one turn after the other on one thread."""
        chance = random.Random(f"panel {self.seed} {number}")
        thread_id: str | None = None
        for place, step in enumerate(flow.steps):
            tag = f"t{number}x{place}"
            turn = _new_turn(tag, step, thread_id, chance)
            self.seen.append(turn)
            await _OneTurn(self, turn, chance).carry_out()
            thread_id = turn.last.thread_id if turn.last else None


class _OneTurn:
    def __init__(self, panel: Panel, turn: Seen, chance: random.Random) -> None:
        self._panel = panel
        self._turn = turn
        self._chance = chance
        subject = f"vystak.default.agents.{turn.step.agent}.tasks"
        self._client = TurnsClient(panel.connection, subject)

    async def carry_out(self) -> None:
        await self._dispatch()
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._read())
            cancelling = group.create_task(self._cancel())
            left = await self._poll()
            if left:
                # As a panel that begins something else on this thread.
                reading.cancel()
            await asyncio.wait({cancelling})
        self._turn.finished = True

    async def _dispatch(self) -> None:
        turn = self._turn
        await self._ask(self._create)
        turn.acknowledged_at = time.time()
        if self._chance.random() < 0.2:
            turn.asked_twice = True
            await self._ask(self._create)

    async def _create(self) -> object:
        turn = self._turn
        return await self._client.create_detached(
            turn.request, turn.turn_id, turn.subject, ASK_TIMEOUT_S
        )

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """Ask until somebody answers; an error that says "later" is no answer."""
        while True:
            try:
                return await call()
            except ServiceUnavailable:
                pass
            except RpcError as error:
                if error.code not in _LATER:
                    self._turn.wrong.append(f"answer: {error}")
                    return None
            await _pause(_AGAIN_S)

    async def _read(self) -> None:
        js = self._panel.connection.jetstream()
        async with aclosing(follow(js, self._turn.subject)) as news:
            async for message in news:
                self._turn.read.append(message)

    async def _cancel(self) -> None:
        if self._turn.step.cancel_after_s is None:
            return
        await _pause(self._turn.step.cancel_after_s)
        while not self._turn.cancel_acknowledged and not self._has_ended():
            with suppress(ServiceUnavailable, RpcError):
                await self._client.cancel_detached(self._turn.turn_id)
                self._turn.cancel_acknowledged = True
                return
            await _pause(_AGAIN_S)

    def _has_ended(self) -> bool:
        last = self._turn.last
        return last is not None and last.status in ENDED

    async def _poll(self) -> bool:
        """Ask where the turn stands until it has ended; True: it was left while it was parked."""
        while True:
            status = await self._status()
            if status is not None and status.status in ENDED:
                return False
            if status is not None and status.status is WireStatus.PARKED:
                if self._turn.step.leave_parked:
                    return True
                await self._panel.at_park(self._turn, status)
                await _pause(self._chance.random() * _THINKS_S)
                await self._decide(status)
            await _pause(_POLL_S * (0.5 + self._chance.random()))

    async def _status(self) -> TurnStatusResult | None:
        asked_at, loop = time.time(), asyncio.get_running_loop()
        begun_s = loop.time()
        answer = None
        try:
            answer = await self._client.turn_status(self._turn.turn_id)
        except ServiceUnavailable:
            pass
        except RpcError as error:
            self._turn.wrong.append(f"status: {error}")
        if answer is not None and answer.status is WireStatus.UNKNOWN:
            self._turn.wrong.append("status: an acknowledged turn is unknown")
        took_s = loop.time() - begun_s
        self._turn.polls.append(Poll(asked_at, took_s, answer))
        return answer

    async def _decide(self, status: TurnStatusResult) -> None:
        """Decide, often twice at once with two values, as two people in front of two screens."""
        assert status.park_generation is not None
        voices = 2 if self._chance.random() < 0.3 else 1
        values = [self._turn.step.word(self._chance) for _ in range(voices)]
        generation = status.park_generation
        made = await asyncio.gather(*(self._decide_as(value, generation) for value in values))
        self._turn.decided += made

    async def _decide_as(self, value: str, generation: int) -> Decided:
        try:
            await self._client.resume_detached(self._turn.turn_id, value, generation)
        except ServiceUnavailable:
            # Whoever asks again without knowing could only be told that it was decided.
            return Decided(generation, value, None)
        except RpcError as error:
            if error.code not in {*_LATER, ErrorCode.INVALID_PARAMS}:
                self._turn.wrong.append(f"decision: {error}")
            return Decided(generation, value, acknowledged=False)
        return Decided(generation, value, acknowledged=True)


def _new_turn(tag: str, step: Step, thread_id: str | None, chance: random.Random) -> Seen:
    turn_id = f"{tag}-{uuid.UUID(int=chance.getrandbits(128)).hex}"
    conversation = uuid.UUID(int=chance.getrandbits(128)).hex
    request = {
        "model": "",
        "input": f"{step.words} #{tag}",
        "previous_response_id": thread_id,
        "store": True,
        "stream": True,
    }
    return Seen(tag, step, turn_id, f"vystak.default.streams.{conversation}.{turn_id}", request)


async def _pause(length_s: float) -> None:
    """Let time pass, as it does between two polls of a panel."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(length_s, passed.set)
    await passed.wait()
