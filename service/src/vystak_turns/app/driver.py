"""Drives one turn: apply a fact, carry out the effects, until the turn ends, parks or is let go."""

from __future__ import annotations

from typing import assert_never

import structlog

from vystak_turns.app import recovery
from vystak_turns.app.executor import Executor, resume_call
from vystak_turns.app.log_writer import LogMovedError, OvertakenError
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
)
from vystak_turns.core.turn import Turn
from vystak_turns.ports import AppendTooLargeError, DispatchCall

_logger = structlog.get_logger(__name__)


class Driver:
    """One turn's driver. Owned, started and stopped by the supervisor."""

    def __init__(self, world: World, turn_id: str) -> None:
        self._world = world
        self._turn_id = turn_id
        self._stopping = False
        self._pauses = world.pauses()
        self._scout = recovery.Scout(world)
        self._executor: Executor | None = None
        self.waiting_for: str | None = None

    async def run(self) -> None:
        """Drive the turn until nobody needs to drive it any more.

        Raises:
            NotOwnerError: another process owns the journal.

        """
        limit = self._world.limits.seq_block
        fact: Fact | None = DriverStarted(self._world.journal.new_token(), limit)
        while fact is not None:
            turn, effects = await self._world.ledger.apply_patiently(
                self._turn_id, fact, self._pauses
            )
            self._note(fact, turn)
            fact = await self._carry_out(turn, effects)

    async def stop(self) -> bool:
        """Ask to stop in order; tell whether the driver needs time to finish a step (R12)."""
        self._stopping = True
        if self._executor is None or not self._executor.reading:
            return False
        turn = await self._world.journal.get(self._turn_id)
        if turn is not None:
            await self._world.agents[turn.agent].drain(turn.thread_id, turn.turn_id, turn.token)
        return True

    async def _carry_out(self, turn: Turn, effects: tuple[Effect, ...]) -> Fact | None:
        """Carry out the effects in order; the first fact that comes of one ends the list."""
        for effect in effects:
            try:
                fact = await self._perform(turn, effect)
            except LogMovedError:
                return LogMoved(turn.token, self._world.journal.new_token())
            except OvertakenError:
                _logger.info("another driver has the turn", turn_id=self._turn_id)
                return None
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
                return await executor.run(call, None)
            case Resume(catch_up, after, decisions):
                resume = resume_call(turn, catch_up=catch_up, after=after, decisions=decisions)
                return await executor.run(resume, after)
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

    def _writing(self, turn: Turn) -> Executor:
        """The executor of this driver, writing in the name of the turn's present token."""
        if self._executor is None:
            self._executor = Executor(self._world, turn, recovery.NOTHING_READ)
        self._executor.take(turn)
        return self._executor

    async def _probe(self, turn: Turn, pace: Pace) -> Probed | None:
        if self._stopping:
            return None
        match pace:
            case Pace.NOW:
                self._pauses.reset()
            case Pace.LATER:
                await self._pauses.take()
            case _:
                assert_never(pace)
        caught_up = self._executor.caught_up if self._executor is not None else None
        ends, findings = await self._scout.look(turn, caught_up, self._set_waiting)
        self._executor = Executor(self._world, turn, ends, caught_up)
        epoch = findings.view.epoch if findings.view is not None else None
        new_token = self._world.journal.new_token(at_least=(epoch or 0) + 1)
        return Probed(turn.token, new_token, findings)

    def _set_waiting(self, what: str | None) -> None:
        self.waiting_for = what

    def _note(self, fact: Fact, turn: Turn) -> None:
        _logger.info(
            "turn",
            turn_id=turn.turn_id,
            fact=type(fact).__name__,
            state=turn.state.value,
            token=turn.token,
            attempts=turn.attempts,
        )
