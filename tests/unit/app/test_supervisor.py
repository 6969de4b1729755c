"""Every running turn has a driver, whatever happens to the one before (R9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.turn_samples import turn_in
from vystak_turns.adapters.journal_sqlite.journal import SqliteJournal
from vystak_turns.adapters.system import RandomIds, SystemClock
from vystak_turns.app import supervisor as supervising
from vystak_turns.app.ledger import Ledger
from vystak_turns.app.limits import Limits
from vystak_turns.app.log_writer import OvertakenError
from vystak_turns.app.supervisor import Supervisor
from vystak_turns.app.world import World
from vystak_turns.core.facts import TerminalAppended
from vystak_turns.core.turn import Failure
from vystak_turns.ports import NotOwnerError
from vystak_turns_rpc.vocabulary import TurnState

_T = TypeVar("_T")
SOON_S = 10


async def inline(work: Callable[[], _T]) -> _T:
    await asyncio.sleep(0)
    return work()


class TroubledDriver:
    """Fails in every way that a driver can fail, one after the other, then ends its turn."""

    troubles: tuple[Exception, ...] = ()
    drives = 0
    ended = asyncio.Event()

    def __init__(self, world: World, turn_id: str) -> None:
        self.waiting_for = None
        self._world = world
        self._turn_id = turn_id
        type(self).drives += 1
        if self.drives == 1:
            raise TypeError("a defect before the driver was there")

    async def run(self) -> None:
        troubles = type(self).troubles
        if self.drives <= len(troubles):
            raise troubles[self.drives - 1]
        turn = await self._world.journal.get(self._turn_id)
        assert turn is not None
        fact = TerminalAppended(turn.token, 9, Failure("graph_error", "enough"))
        await self._world.ledger.apply(self._turn_id, fact)
        self.ended.set()

    async def stop(self) -> bool:
        return False


@pytest.fixture
async def journal(tmp_path: Path) -> SqliteJournal:
    journal = SqliteJournal(tmp_path / "turns.db", inline)
    await journal.open(1)
    await journal.create(turn_in(TurnState.RUNNING), {"input": "go"}, None)
    return journal


def supervisor_of(journal: SqliteJournal) -> Supervisor:
    clock = SystemClock()
    limits = Limits(retry_first_s=0.001, retry_max_s=0.002, stop_grace_s=0.1)
    nothing = object()
    return Supervisor(
        journal,
        Ledger(journal, clock),
        nothing,  # type: ignore[arg-type]
        {"worker": nothing},  # type: ignore[dict-item]
        clock,
        RandomIds(),
        limits,
    )


@pytest.mark.parametrize(
    "trouble", [RuntimeError("a defect"), OvertakenError()], ids=["defect", "overtaken"]
)
async def test_r9_a_turn_gets_a_new_driver_when_one_fails(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    monkeypatch.setattr(supervising, "Driver", TroubledDriver)
    TroubledDriver.drives, TroubledDriver.ended = 0, asyncio.Event()
    TroubledDriver.troubles = (trouble,) * 3
    supervisor = supervisor_of(journal)

    supervisor.start()
    async with asyncio.timeout(SOON_S):
        await TroubledDriver.ended.wait()
    await supervisor.stop()

    assert TroubledDriver.drives == 4
    assert not supervisor.lost_journal.is_set()
    await journal.close()


class FrozenAgentsDriver(TroubledDriver):
    """Drives a turn whose agent does not answer, not even when it is asked to stop."""

    async def run(self) -> None:
        self.ended.set()
        await asyncio.Event().wait()

    async def stop(self) -> bool:
        await asyncio.Event().wait()
        return True


async def test_r12_a_stop_takes_no_longer_than_the_grace_time_when_an_agent_is_frozen(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "Driver", FrozenAgentsDriver)
    FrozenAgentsDriver.drives, FrozenAgentsDriver.ended = 1, asyncio.Event()
    supervisor = supervisor_of(journal)
    supervisor.start()
    async with asyncio.timeout(SOON_S):
        await FrozenAgentsDriver.ended.wait()
        await supervisor.stop()

    left = await journal.get("t1")
    assert left is not None
    assert left.free_claim
    await journal.close()


async def test_a_turn_that_is_driven_already_gets_no_second_driver(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the journal holds at the start and that is asked for at the same moment."""
    monkeypatch.setattr(supervising, "Driver", TroubledDriver)
    TroubledDriver.drives, TroubledDriver.ended = 1, asyncio.Event()
    TroubledDriver.troubles = ()
    supervisor = supervisor_of(journal)

    supervisor.start()
    supervisor.wake("t1")
    async with asyncio.timeout(SOON_S):
        await TroubledDriver.ended.wait()
    supervisor.wake("t1")
    await supervisor.stop()

    assert TroubledDriver.drives == 2, "the one before this test, and one of this test"
    await journal.close()


async def test_a_turn_of_an_agent_that_is_not_configured_is_left_alone(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "Driver", TroubledDriver)
    TroubledDriver.drives = 1
    await journal.create(replace(turn_in(TurnState.RUNNING), turn_id="t2", agent="other"), {}, None)
    supervisor = supervisor_of(journal)

    supervisor.start()

    assert set(supervisor._tasks) == {"t1"}
    await supervisor.stop()
    await journal.close()


async def test_a_process_that_lost_its_journal_says_so_and_drives_nothing_more(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "Driver", TroubledDriver)
    TroubledDriver.drives, TroubledDriver.ended = 1, asyncio.Event()
    TroubledDriver.troubles = (NotOwnerError("another one"),) * 9
    supervisor = supervisor_of(journal)

    supervisor.start()
    async with asyncio.timeout(SOON_S):
        await supervisor.lost_journal.wait()
    await supervisor.stop()

    assert not TroubledDriver.ended.is_set()
    await journal.close()
