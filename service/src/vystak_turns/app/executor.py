"""Carries out one driver's effects on agent and log: reads a stream, appends, records, rewinds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, assert_never

import structlog

from vystak_turns.app.log_writer import LogWriter, OvertakenError
from vystak_turns.app.recovery import Ends
from vystak_turns.app.silence import Silence
from vystak_turns.app.world import World
from vystak_turns.core.effects import StandDown
from vystak_turns.core.facts import (
    ApprovalAsked,
    BoundaryReached,
    CallRefused,
    CaughtUp,
    EventRefused,
    Fact,
    LogRestarted,
    Refusal,
    RewindDecided,
    StreamEnd,
    StreamEnded,
    TerminalAppended,
)
from vystak_turns.core.probe import log_is_whole
from vystak_turns.core.turn import Boundary, Decision, Failure, Park, Turn
from vystak_turns.ports import (
    AgentEvent,
    BoundaryChange,
    CallRefusedError,
    Ended,
    Marker,
    ResumeCall,
    RolledBack,
    RunCall,
    StreamItem,
    TooLarge,
)
from vystak_turns_rpc import events
from vystak_turns_rpc.vocabulary import FailureCode

_logger = structlog.get_logger(__name__)


def resume_call(
    turn: Turn,
    *,
    catch_up: bool,
    after: Boundary | None,
    decisions: tuple[Decision, ...] = (),
) -> ResumeCall:
    """Return the call that has the turn's thread go on, or only tell its history."""
    return ResumeCall(
        turn_id=turn.turn_id,
        thread_id=turn.thread_id,
        epoch=turn.token,
        catch_up=catch_up,
        after_checkpoint_id=None if after is None else after.checkpoint_id,
        decisions=decisions,
    )


@dataclass(frozen=True, slots=True)
class Watch:
    """What a driver wants to know of its executor: how quiet it is, and that it got on."""

    silence: Silence
    progressed: Callable[[], None]


class Executor:
    """The hands of one driver, from one probe to the next.

    `reading` tells whether a stream of the agent is open. `caught_up` is the checkpoint of a
    parked thread whose whole history is in the log, and the seq at which it ends there.
    """

    def __init__(
        self,
        world: World,
        turn: Turn,
        ends: Ends,
        watch: Watch,
        caught_up: Boundary | None = None,
    ) -> None:
        self._world = world
        self._turn = turn
        self._agent = world.agents[turn.agent]
        self._writer = LogWriter(
            world.log, world.ledger, world.pauses(), world.limits.seq_block, turn, ends.tail
        )
        self._watch = watch
        self._ticker: asyncio.Task[None] | None = None
        self._boundaries = {b.checkpoint_id: b for b in ends.boundaries}
        self.caught_up = caught_up
        self.reading = False

    @property
    def waits_for_broker(self) -> bool:
        """Whether the stream cannot be read on because the broker keeps an append waiting."""
        return self._writer.waiting

    def take(self, turn: Turn) -> None:
        """Work in the name of the turn's present driver."""
        if turn.token != self._turn.token:
            self._writer.take(turn)
        self._turn = turn

    async def run(self, call: RunCall, after: Boundary | None) -> Fact:
        """Call the agent and bring what it streams into the log, until the stream is over."""
        try:
            async with self._agent.run(call) as stream:
                self.reading = True
                self._start_ticking()
                return await self._read(stream)
        except CallRefusedError as refused:
            return self._refused(refused, after)
        finally:
            self.reading = False
            await self._stop_ticking()

    def _start_ticking(self) -> None:
        if self._watch.silence.limit_s:
            self._ticker = asyncio.create_task(self._tick(), name="keep-alives")

    async def _stop_ticking(self) -> None:
        """Stop the keep-alives; one in flight settles first."""
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            async with self._writer.settled():
                ticker.cancel()
            await asyncio.gather(ticker, return_exceptions=True)

    async def _tick(self) -> None:
        """Tell readers of a quiet run that it lives. Never the first event: readers expect one."""
        while True:
            await self._world.clock.sleep(self._watch.silence.limit_s / 4)
            if self._watch.silence.too_long() and not self._writer.at_start:
                await self._append(events.keepalive())

    async def keep_alive(self) -> None:
        """Tell readers of a turn that is not being run now that it lives."""
        await self._append(events.keepalive())

    def _refused(self, refused: CallRefusedError, after: Boundary | None) -> CallRefused:
        if refused.refusal is Refusal.UNREACHABLE:
            self._world.health[self._turn.agent].suspect()
        return CallRefused(
            self._turn.token,
            self._world.journal.new_token(),
            refused.refusal,
            refused.words,
            after,
        )

    async def catch_up(self, after: Boundary | None, checkpoint_id: str | None) -> Fact:
        """Bring the rest of a parked thread's history into the log."""
        fact = await self.run(resume_call(self._turn, catch_up=True, after=after), after)
        if not (isinstance(fact, StreamEnded) and fact.how is StreamEnd.CLEAN):
            return fact
        if checkpoint_id is not None:
            self.caught_up = Boundary(checkpoint_id, self._writer.last_seq)
        return CaughtUp(self._turn.token)

    async def rewind(self, target: Boundary | None) -> None:
        """Send readers back: forget the boundaries above in one commit, then append the rewind."""
        await self._cut(target)
        to_seq = -1 if target is None else target.seq
        seq = await self._append(events.rewind(to_seq), rewinds_to=to_seq)
        _logger.info("rewound", turn_id=self._turn.turn_id, to_seq=to_seq, seq=seq)
        if target is None:
            await self._apply(LogRestarted(self._turn.token, seq))

    async def forget(self, boundary: Boundary) -> None:
        """Delete a boundary that the agent does not know, and all newer ones."""
        known = list(self._boundaries.values())
        older = known[: known.index(boundary)]
        await self._cut(older[-1] if older else None)

    async def _cut(self, target: Boundary | None) -> None:
        keep = None if target is None else target.checkpoint_id
        change = BoundaryChange(cut=True, keep=keep)
        await self._apply(RewindDecided(self._turn.token, target), change)
        kept: dict[str, Boundary] = {}
        if keep is not None:
            for checkpoint_id, boundary in self._boundaries.items():
                kept[checkpoint_id] = boundary
                if checkpoint_id == keep:
                    break
        self._boundaries = kept

    async def ask(self, park: Park) -> Fact:
        """Append the approval event of a park."""
        question = park.question()
        event = events.approval_requested(question.payload, park.generation, question.interrupt_id)
        seq = await self._append(event, needs_all=True)
        return ApprovalAsked(self._turn.token, park, seq)

    async def fail(self, failure: Failure) -> Fact:
        """Append `response.failed`."""
        event = events.failed(failure.message, failure.code, self._turn.thread_id)
        seq = await self._append(event)
        return TerminalAppended(self._turn.token, seq, failure)

    async def _read(self, stream: AsyncIterator[StreamItem]) -> Fact:
        async for item in stream:
            fact = await self._take_in(item)
            if fact is not None:
                return fact
        return self._lost(StreamEnd.LOST)

    async def _take_in(self, item: StreamItem) -> Fact | None:
        match item:
            case AgentEvent():
                return await self._publish(item)
            case Marker(checkpoint_id):
                await self._mark(checkpoint_id)
                return None
            case RolledBack(checkpoint_id):
                return await self._roll_back(checkpoint_id)
            case TooLarge(words):
                return EventRefused(self._turn.token, words)
            case Ended(how):
                return self._lost(how)
            case _:
                assert_never(item)

    def _lost(self, how: StreamEnd) -> StreamEnded:
        if how is not StreamEnd.CLEAN:
            self._world.health[self._turn.agent].suspect()
        return StreamEnded(self._turn.token, self._world.journal.new_token(), how)

    async def _publish(self, event: AgentEvent) -> Fact | None:
        if event.type == events.RESPONSE_CREATED and not self._writer.at_start:
            return None  # readers have the earlier one
        if not events.is_terminal(event.type):
            await self._writer.append(event.json)
            self._watch.silence.broken()
            return None
        if event.type == events.RESPONSE_COMPLETED and await self._lost_its_start():
            return self._lost(StreamEnd.LOST)
        await self._stop_ticking()
        completed = event.type == events.RESPONSE_COMPLETED
        seq = await self._writer.append(event.json, needs_all=completed)
        return TerminalAppended(self._turn.token, seq, failure_in(event))

    async def _lost_its_start(self) -> bool:
        """Whether the log no longer begins with the turn's first event: it must be shown again.

        Age is not the only thief: a stream can be purged, or lost with its broker.
        """
        return not log_is_whole(self._turn, await self._writer.read_head())

    async def _mark(self, checkpoint_id: str) -> None:
        """Record a boundary, once a checkpoint; all before it is acknowledged already."""
        seq = self._writer.last_seq
        if checkpoint_id in self._boundaries or seq < 0:
            return
        boundary = Boundary(checkpoint_id, seq)
        change = BoundaryChange(record=boundary)
        await self._apply(BoundaryReached(self._turn.token, boundary), change)
        self._boundaries[checkpoint_id] = boundary
        # Checkpoint ids grow with time: only a newer one than at the claim is progress.
        if checkpoint_id > (self._turn.claimed_checkpoint or ""):
            self._watch.progressed()

    async def _roll_back(self, checkpoint_id: str | None) -> Fact | None:
        if checkpoint_id is None:
            await self.rewind(None)
            return None
        target = self._boundaries.get(checkpoint_id)
        if target is None:
            return self._lost(StreamEnd.LOST)
        if self._writer.last_seq > target.seq:
            await self.rewind(target)
        return None

    async def _append(
        self, event: dict[str, Any], *, rewinds_to: int | None = None, needs_all: bool = False
    ) -> int:
        # Escaped: a payload may hold half of a surrogate pair, which has no UTF-8.
        text = json.dumps(event, separators=(",", ":"))
        seq = await self._writer.append(text.encode(), rewinds_to=rewinds_to, needs_all=needs_all)
        self._watch.silence.broken()
        return seq

    async def _apply(self, fact: Fact, boundaries: BoundaryChange | None = None) -> None:
        turn, effects = await self._world.ledger.apply_patiently(
            self._turn.turn_id, fact, self._world.pauses(), boundaries
        )
        if StandDown() in effects:
            raise OvertakenError
        self._turn = turn


def failure_in(event: AgentEvent) -> Failure | None:
    """Return the failure that a terminal event of the agent tells of; `None`: it completed."""
    if event.type == events.RESPONSE_COMPLETED:
        return None
    response = json.loads(event.json).get("response")
    error = response.get("error") if isinstance(response, dict) else None
    error = error if isinstance(error, dict) else {}
    code, message = error.get("code"), error.get("message")
    return Failure(
        code if isinstance(code, str) else FailureCode.GRAPH_ERROR,
        message if isinstance(message, str) else "The agent failed without saying why.",
    )
