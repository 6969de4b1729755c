"""Owns every driver: starts one for each turn that needs it, and stops them all in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import structlog

from vystak_turns.app.agent_gate import AgentGate
from vystak_turns.app.driver import Driver
from vystak_turns.app.health import AgentHealth
from vystak_turns.app.ledger import Ledger
from vystak_turns.app.limits import Limits
from vystak_turns.app.log_writer import OvertakenError
from vystak_turns.app.world import World
from vystak_turns.core.facts import LetGo
from vystak_turns.core.turn import Intent, Turn
from vystak_turns.ports import (
    Agent,
    Clock,
    Ids,
    Journal,
    JournalUnavailableError,
    NotOwnerError,
    TurnLog,
)
from vystak_turns_rpc.vocabulary import TurnState

_logger = structlog.get_logger(__name__)


class Supervisor:
    """Every `running` turn is being driven or waits for something that has a name (R9).

    `lost_journal` is set when another process has become the journal's owner: this one must end.
    """

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        log: TurnLog,
        agents: Mapping[str, Agent],
        clock: Clock,
        ids: Ids,
        limits: Limits,
    ) -> None:
        health = {
            name: AgentHealth(name, agent, clock, ids, limits) for name, agent in agents.items()
        }
        gates = {name: AgentGate(limits.retry_max_s) for name in agents}
        self._world = World(journal, ledger, log, agents, health, gates, clock, ids, limits)
        self._slots = asyncio.Semaphore(limits.max_running_turns)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._drivers: dict[str, Driver] = {}
        self._queued: dict[str, str] = {}
        self._finished = asyncio.Condition()
        self._stopping = False
        self.lost_journal = asyncio.Event()

    def start(self) -> None:
        """Begin to drive every turn that was left unfinished."""
        for turn in self._world.journal.unfinished():
            if turn.agent not in self._world.agents:
                _logger.error(
                    "no such agent is configured: its turns wait",
                    agent=turn.agent,
                    turn_id=turn.turn_id,
                )
            elif turn.state is not TurnState.PARKED:
                self.wake(turn.turn_id)

    def wake(self, turn_id: str) -> None:
        """See to it that the turn has a driver."""
        if self._stopping or turn_id in self._tasks:
            return
        task = asyncio.create_task(self._drive(turn_id), name=f"driver of {turn_id}")
        self._tasks[turn_id] = task

    def end(self, turn_id: str) -> None:
        """See to it that a turn whose end was committed comes to it: its run is drained."""
        self.wake(turn_id)
        driver = self._drivers.get(turn_id)
        if driver is not None:
            driver.end()

    def waiting_for(self, turn_id: str) -> str | None:
        """What a running turn waits for: thread, slot, broker, agent, step; `None`: nothing."""
        queued = self._queued.get(turn_id)
        if queued is not None:
            return queued
        driver = self._drivers.get(turn_id)
        return driver.waiting_for if driver is not None else None

    async def stop(self) -> None:
        """Let every driver go in order (R12): finish steps in flight, spend no attempt."""
        self._stopping = True
        # Asking takes part of the grace time: a frozen agent does not answer for long.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._world.limits.stop_grace_s):
                await self._finish_steps()
        turns = list(self._tasks)
        rest = list(self._tasks.values())
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.gather(*(self._let_go(turn_id) for turn_id in turns))
        for health in self._world.health.values():
            await health.stop()

    async def _finish_steps(self) -> None:
        finishing = await self._ask_drivers_to_stop()
        if finishing:
            await asyncio.wait(finishing)

    async def _ask_drivers_to_stop(self) -> list[asyncio.Task[None]]:
        """Return the tasks that need time; the others may be cancelled at any point."""
        asked = list(self._drivers.items())
        answers = await asyncio.gather(*(driver.stop() for _, driver in asked))
        return [
            self._tasks[turn_id]
            for (turn_id, _), needs_time in zip(asked, answers, strict=True)
            if needs_time and turn_id in self._tasks
        ]

    async def _let_go(self, turn_id: str) -> None:
        """Record that a driver stopped in order, so that the next claim is free."""
        turn = await self._world.journal.get(turn_id)
        if turn is None or turn.state is not TurnState.RUNNING:
            return
        try:
            await self._world.ledger.apply(turn_id, LetGo(turn.token))
        except JournalUnavailableError as error:
            _logger.warning("could not record the stop", turn_id=turn_id, error=str(error))

    async def _drive(self, turn_id: str) -> None:
        try:
            await self._wait_for_thread(turn_id)
            self._queued[turn_id] = "slot"
            async with self._slots:
                self._queued.pop(turn_id, None)
                await self._drive_again_and_again(turn_id)
        except NotOwnerError:
            _logger.critical("another process owns the journal", turn_id=turn_id)
            self.lost_journal.set()
        finally:
            self._queued.pop(turn_id, None)
            self._drivers.pop(turn_id, None)
            self._tasks.pop(turn_id, None)
            await self._tell_finished()
        await self._wake_if_needed(turn_id)

    async def _drive_again_and_again(self, turn_id: str) -> None:
        """Drive; a defect of ours must not leave a turn without a driver (R9)."""
        pauses = self._world.pauses()
        while not self._stopping:
            try:
                driver = self._drivers[turn_id] = Driver(self._world, turn_id)
                await driver.run()
            except NotOwnerError:
                raise
            except OvertakenError:
                # The journal still names us, else the next commit says so: probe again, in peace.
                _logger.warning("another driver wrote to the log", turn_id=turn_id)
                await pauses.take()
            except Exception:
                _logger.exception("driver failed, trying again", turn_id=turn_id)
                await pauses.take()
            else:
                return

    async def _wake_if_needed(self, turn_id: str) -> None:
        """A decision may have come while the driver that parked the turn was leaving."""
        turn = await self._world.journal.get(turn_id)
        if turn is not None and not turn.ended and turn.state is not TurnState.PARKED:
            self.wake(turn_id)

    async def _wait_for_thread(self, turn_id: str) -> None:
        """A new turn waits until the superseded one on its thread has ended (R13).

        So does one of the original's: it may have left several unfinished ones on a thread.
        """
        turn = await self._world.journal.get(turn_id)
        if turn is None or not _comes_after_others(turn):
            return
        self._queued[turn_id] = "thread"
        thread = (turn.agent, turn.thread_id, turn_id)
        async with self._finished:
            await self._finished.wait_for(
                lambda: self._world.journal.blocking_thread(*thread) is None
            )

    async def _tell_finished(self) -> None:
        async with self._finished:
            self._finished.notify_all()


def _comes_after_others(turn: Turn) -> bool:
    if turn.state is TurnState.QUEUED:
        return True
    return turn.adopted_as is not None and turn.intent is not Intent.SUPERSEDED
