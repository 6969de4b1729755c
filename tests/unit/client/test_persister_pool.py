"""Persisters in tasks: one a turn, none lost, none left over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.turn_events import COMPLETED, asks, delta, log
from tests.support.waiting import ticks
from vystak_turns_client.errors import NotConnected
from vystak_turns_client.persister import Persister
from vystak_turns_client.persister_pool import PersisterPool
from vystak_turns_client.persister_sqlite import SqliteStorage
from vystak_turns_client.retained import LoggedMessage
from vystak_turns_client.storage import ActiveTurn, RowState
from vystak_turns_rpc.methods import TurnStatusResult

TURN = ActiveTurn("c1", "t1", "vystak.default.streams.c1.t1")


class LiveLog:
    """A log that tells when it is read and grows when the test says so."""

    def __init__(self) -> None:
        self.messages: list[LoggedMessage] = []
        self.reads = 0
        self.failure: Exception | None = None
        self._grown = asyncio.Condition()

    async def say(self, *messages: LoggedMessage) -> None:
        async with self._grown:
            self.messages += messages
            self._grown.notify_all()

    async def read_times(self, count: int) -> None:
        async with asyncio.timeout(10), self._grown:
            await self._grown.wait_for(lambda: self.reads >= count)

    async def follow(
        self, subject: str, after_stream_seq: int, idle_s: float
    ) -> AsyncGenerator[LoggedMessage, None]:
        async with self._grown:
            self.reads += 1
            self._grown.notify_all()
        if self.failure is not None:
            raise self.failure
        place = 0
        while True:
            async with self._grown:
                await self._grown.wait_for(partial(self._has, place))
            yield self.messages[place]
            place += 1
            if self.messages[place - 1].event == COMPLETED:
                return

    def _has(self, place: int) -> bool:
        return len(self.messages) > place

    async def rest(self, subject: str, after_stream_seq: int) -> list[LoggedMessage]:
        return self.messages


async def not_asked(_: str) -> TurnStatusResult:
    raise AssertionError("nothing was idle")


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[SqliteStorage]:
    async with SqliteStorage(tmp_path / "panel.db", lambda: 1.0) as opened:
        await opened.create_conversation("c1", "first")
        await opened.begin_turn(TURN, "hello")
        yield opened


def pool_of(storage: SqliteStorage, turn_log: LiveLog, retry_s: float = 60.0) -> PersisterPool:
    return PersisterPool(Persister(storage, turn_log, not_asked, lambda: 0.0), retry_s)


async def settled(storage: SqliteStorage, pool: PersisterPool) -> None:
    async for _ in ticks("every turn is settled"):
        if not pool.attended and not await storage.active_turns():
            return


async def test_at_the_start_every_active_turn_gets_one_persister(storage: SqliteStorage) -> None:
    turn_log = LiveLog()
    async with pool_of(storage, turn_log) as pool:
        assert pool.attended == {"t1"}
        pool.start(TURN)
        await turn_log.read_times(1)
        await turn_log.say(*log(delta("a"), COMPLETED))
        await settled(storage, pool)
    assert turn_log.reads == 1
    assert [row.content for row in await storage.messages("c1")] == ["hello", "a"]


async def test_a_persister_that_fails_leaves_its_turn_active_and_is_followed_by_another(
    storage: SqliteStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """W58: the original gives up until the panel starts again."""
    turn_log = LiveLog()
    turn_log.failure = NotConnected("the broker is gone")
    async with pool_of(storage, turn_log, retry_s=0.01) as pool:
        await turn_log.read_times(3)
        assert await storage.active_turns() == [TURN]
        turn_log.failure = None
        await turn_log.say(*log(delta("a"), COMPLETED))
        await settled(storage, pool)
    assert "the turn stays active" in caplog.text


async def test_a_closed_pool_leaves_turns_active_and_no_task_behind(
    storage: SqliteStorage,
) -> None:
    turn_log = LiveLog()
    async with pool_of(storage, turn_log) as pool:
        await turn_log.read_times(1)
    assert pool.attended == frozenset()
    assert await storage.active_turns() == [TURN]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_turn_that_could_not_be_dispatched_is_attended_no_more(
    storage: SqliteStorage,
) -> None:
    turn_log = LiveLog()
    async with pool_of(storage, turn_log) as pool:
        await storage.clear_active_turn(TURN)
        await pool.stop("t1")
        await pool.stop("unknown")
        assert pool.attended == frozenset()


async def test_a_decision_wakes_a_turn_at_rest(storage: SqliteStorage) -> None:
    await storage.put_to_rest(TURN)
    turn_log = LiveLog()
    await turn_log.say(*log(asks("rm")))
    async with pool_of(storage, turn_log) as pool:
        assert pool.attended == frozenset()
        await pool.decided(TURN)
        assert pool.attended == {"t1"}
        await turn_log.say(LoggedMessage(1, COMPLETED, 90))
        await settled(storage, pool)


async def test_a_turn_at_rest_whose_decision_was_not_heard_is_found_when_it_is_looked_at(
    storage: SqliteStorage,
) -> None:
    await storage.put_to_rest(TURN)
    turn_log = LiveLog()
    await turn_log.say(*log(asks("rm")))
    async with pool_of(storage, turn_log) as pool:
        await pool.look_again("c1")
        assert pool.attended == frozenset()
        await turn_log.say(LoggedMessage(1, delta("on"), 90))
        await pool.look_again("c1")
        assert pool.attended == {"t1"}
        await turn_log.say(LoggedMessage(2, COMPLETED, 91))
        await settled(storage, pool)
    row = await storage.row("t1")
    assert row is not None
    assert (row.content, row.state) == ("on", RowState.DONE)
