"""Drives one turn: apply a fact, carry out the effects, until the turn ends, parks or is let go."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from typing import assert_never

import structlog

from vystak_turns.app import recovery
from vystak_turns.app.agent_gate import Visit
from vystak_turns.app.executor import Executor, Watch, resume_call
from vystak_turns.app.log_writer import LogMovedError, OvertakenError
from vystak_turns.app.silence import Silence
from vystak_turns.app.world import World
from vystak_turns.core.effects import (
    AskApproval,
    CatchUp,
    Dispatch,
    Drain,
    Effect,
    Fail,
    ForgetBoundary,
    Pace,
    Probe,
    Resume,
    Rewind,
    StandDown,
)
from vystak_turns.core.facts import (
    DriverStarted,
    EventRefused,
    Fact,
    LogMoved,
    Probed,
    StreamEnd,
    StreamEnded,
)
from vystak_turns.core.findings import Asked, Findings, Terminal
from vystak_turns.core.rows import calls_agent, is_last_attempt
from vystak_turns.core.turn import Boundary, Turn
from vystak_turns.ports import AppendTooLargeError, DispatchCall, RunCall
from vystak_turns_rpc.vocabulary import TurnState

_logger = structlog.get_logger(__name__)

_HASTY_PROBES = 4
"""So many probes may follow each other closely; a park takes three."""


class Driver:
    """One turn's driver. Owned, started and stopped by the supervisor."""

    def __init__(self, world: World, turn_id: str) -> None:
        self._world = world
        self._turn_id = turn_id
        self._stopping = False
        self._pauses = world.pauses()
        self._scout = recovery.Scout(world, self._keep_alive)
        self._silence = Silence(world.clock, world.limits.keepalive_s)
        self._executor: Executor | None = None
        self._stay = AsyncExitStack()
        self._visit: Visit | None = None
        self._ender: asyncio.Task[None] | None = None
        self._probed_at_s = 0.0
        self._hasty_probes = 0
        self._waiting_for: str | None = None

    @property
    def waiting_for(self) -> str | None:
        """What the turn waits for: broker, agent, step or slot; `None`: nothing (R9)."""
        if self._executor is not None and self._executor.waits_for_broker:
            return "broker"
        return self._waiting_for

    async def run(self) -> None:
        """Drive the turn until nobody needs to drive it any more.

        Raises:
            NotOwnerError: another process owns the journal.
            OvertakenError: a driver with a higher token has written to the log.

        """
        try:
            await self._enter_gate_if_queued()
            limit = self._world.limits.seq_block
            fact: Fact | None = DriverStarted(self._world.journal.new_token(), limit)
            while fact is not None:
                turn, effects = await self._world.ledger.apply_patiently(
                    self._turn_id, fact, self._pauses
                )
                self._note(fact, turn)
                fact = await self._carry_out(turn, effects)
        finally:
            await self._leave_gate()
            if self._ender is not None:
                self._ender.cancel()

    async def stop(self) -> bool:
        """Ask to stop in order; tell whether the driver needs time to finish a step (R12)."""
        self._stopping = True
        return await self.drain()

    def end(self) -> None:
        """An end was committed: have the run stop. Asks again and again, a call may get lost."""
        if self._ender is None:
            self._ender = asyncio.create_task(self._drain_until_over(), name="drain")

    async def drain(self) -> bool:
        """Ask the agent to stop this turn's run after its step; tell whether there is one."""
        if self._executor is None or not self._executor.reading:
            return False
        turn = await self._world.journal.get(self._turn_id)
        if turn is not None:
            await self._world.agents[turn.agent].drain(turn.thread_id, turn.turn_id, turn.token)
        return True

    async def _drain_until_over(self) -> None:
        while True:
            await self.drain()
            await self._world.clock.sleep(self._world.limits.retry_max_s)

    async def _carry_out(self, turn: Turn, effects: tuple[Effect, ...]) -> Fact | None:
        """Carry out the effects in order; the first fact that comes of one ends the list."""
        for effect in effects:
            try:
                fact = await self._perform(turn, effect)
            except LogMovedError:
                return LogMoved(turn.token, self._world.journal.new_token())
            except AppendTooLargeError as error:
                return EventRefused(turn.token, str(error))
            if fact is not None:
                return fact
        return None

    async def _perform(self, turn: Turn, effect: Effect) -> Fact | None:
        match effect:
            case Probe(pace):
                return await self._probe(turn, pace)
            case StandDown():
                return None
            case Drain():
                agent = self._world.agents[turn.agent]
                await agent.drain(turn.thread_id, turn.turn_id, turn.token)
                return None
            case _:
                return await self._perform_on_log(turn, effect)

    async def _perform_on_log(
        self,
        turn: Turn,
        effect: Dispatch | Resume | CatchUp | Rewind | AskApproval | Fail | ForgetBoundary,
    ) -> Fact | None:
        executor = self._writing(turn)
        match effect:
            case Dispatch():
                request = await self._world.journal.request(turn.turn_id)
                call = DispatchCall(turn.turn_id, turn.thread_id, turn.token, request)
                return await self._run(executor, turn, call, None)
            case Resume(catch_up, after, decisions):
                resume = resume_call(turn, catch_up=catch_up, after=after, decisions=decisions)
                return await self._run(executor, turn, resume, after)
            case CatchUp(after, checkpoint_id):
                return await executor.catch_up(after, checkpoint_id)
            case Rewind(target):
                await executor.rewind(target)
            case ForgetBoundary(boundary):
                await executor.forget(boundary)
            case AskApproval(park):
                return await executor.ask(park)
            case Fail(failure):
                return await executor.fail(failure)
            case _:
                assert_never(effect)
        return None

    async def _run(
        self, executor: Executor, turn: Turn, call: RunCall, after: Boundary | None
    ) -> Fact:
        """Have the graph run, unless an end was committed meanwhile."""
        present = await self._world.journal.get(turn.turn_id)
        if present is not None and present.intent is not None:
            return StreamEnded(turn.token, self._world.journal.new_token(), StreamEnd.CLEAN)
        return await executor.run(call, after)

    def _writing(self, turn: Turn) -> Executor:
        """The executor of this driver, writing in the name of the turn's present token."""
        if self._executor is None:
            self._executor = self._executor_on(turn, recovery.NOTHING_READ, None)
        self._executor.take(turn)
        return self._executor

    def _executor_on(self, turn: Turn, ends: recovery.Ends, caught_up: Boundary | None) -> Executor:
        return Executor(self._world, turn, ends, Watch(self._silence, self._progressed), caught_up)

    async def _probe(self, turn: Turn, pace: Pace) -> Probed | None:
        await self._leave_gate()
        if self._stopping:
            return None
        await self._keep_pace(pace)
        await self._keep_alive()
        findings = await self._look(turn)
        if calls_agent(turn, findings):
            alone = is_last_attempt(turn, findings)
            if await self._enter_gate(turn, alone=alone):
                findings = await self._look(turn)
        new_token = self._world.journal.new_token(at_least=_highest_token(findings) + 1)
        return Probed(turn.token, new_token, findings)

    async def _keep_pace(self, pace: Pace) -> None:
        """Pause where the table says so, and when an agent ends its streams as fast as we ask."""
        now_s = self._world.clock.now_s()
        hasty = now_s - self._probed_at_s < self._world.limits.retry_max_s
        self._probed_at_s = now_s
        self._hasty_probes = self._hasty_probes + 1 if hasty else 0
        if pace is Pace.NOW and self._hasty_probes < _HASTY_PROBES:
            self._pauses.reset()
            return
        self._waiting_for = self._waiting_for or "agent"
        await self._pauses.take()

    async def _look(self, turn: Turn) -> Findings:
        caught_up = self._executor.caught_up if self._executor is not None else None
        ends, findings = await self._scout.look(turn, caught_up, self._set_waiting)
        self._check_not_superseded(turn, ends)
        self._executor = self._executor_on(turn, ends, caught_up)
        return findings

    def _check_not_superseded(self, turn: Turn, ends: recovery.Ends) -> None:
        """A log that was just read would take our appends, whoever drives the turn by now (R7).

        Who has a token above the log's got it from the journal, which only its owner can write.
        """
        token = ends.tail.token if ends.tail is not None else None
        if ends.tail is None or token is None or isinstance(ends.tail.what, Terminal):
            return
        if token > turn.token:
            self._world.journal.new_token(at_least=token + 1)
            raise OvertakenError

    async def _enter_gate_if_queued(self) -> None:
        turn = await self._world.journal.get(self._turn_id)
        if turn is not None and turn.state is TurnState.QUEUED:
            await self._enter_gate(turn, alone=False)

    async def _enter_gate(self, turn: Turn, *, alone: bool) -> bool:
        """Wait until this run may begin on its agent; tell whether that took a wait."""
        gate = self._world.gates[turn.agent]
        waits = not gate.is_open(alone=alone)
        if waits:
            _logger.info("waits for the agent's other runs", turn_id=turn.turn_id, alone=alone)
            self._waiting_for = "slot"
        self._visit = await self._stay.enter_async_context(gate.enter(self.drain, alone=alone))
        self._waiting_for = None
        return waits

    async def _leave_gate(self) -> None:
        self._visit = None
        await self._stay.aclose()

    def _progressed(self) -> None:
        if self._visit is not None:
            self._visit.share()

    async def _keep_alive(self) -> None:
        """Say that the turn lives when it has been quiet for too long while nothing runs."""
        if not self._silence.too_long():
            return
        turn = await self._world.journal.get(self._turn_id)
        if turn is None or turn.ended:
            return
        ends = await self._scout.ends(turn)
        if ends.tail is not None and isinstance(ends.tail.what, Terminal | Asked):
            return
        self._check_not_superseded(turn, ends)
        with contextlib.suppress(LogMovedError, OvertakenError):
            await self._executor_on(turn, ends, None).keep_alive()

    def _set_waiting(self, what: str | None) -> None:
        self._waiting_for = what

    def _note(self, fact: Fact, turn: Turn) -> None:
        _logger.info(
            "turn",
            turn_id=turn.turn_id,
            fact=type(fact).__name__,
            state=turn.state.value,
            token=turn.token,
            attempts=turn.attempts,
        )


def _highest_token(findings: Findings) -> int:
    """The highest token that log or agent have seen: a claim must come after all of them."""
    epoch = findings.view.epoch if findings.view is not None else None
    token = findings.tail.token if findings.tail is not None else None
    return max(epoch or 0, token or 0)
