"""The writer of a turn on real brokers: rivals, lost answers, and logs that lose their messages."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.turnlog.places import BASE, SUBJECT
from tests.support.journals import a_turn, opened, own_thread
from tests.support.waiting import ticks
from vystak_turns.adapters.system import RandomIds, SystemClock
from vystak_turns.app.ledger import Ledger
from vystak_turns.app.log_writer import LogMovedError, LogWriter, OvertakenError
from vystak_turns.app.pauses import Pauses
from vystak_turns_rpc import events
from vystak_turns_rpc.vocabulary import TurnState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.integration.turnlog.places import Place
    from vystak_turns.adapters.journal_sqlite.journal import SqliteJournal

pytestmark = pytest.mark.broker

OLD, NEW = 4, 5  # tokens of a driver that is gone and of the one that took over
RESERVED = 100
SECONDS_OF_AGE = 1
WORD = b'{"type":"response.output_text.delta","item_id":"m1","delta":"x"}'
REWIND = json.dumps(events.rewind(-1)).encode()


@dataclass(frozen=True, slots=True)
class Drivers:
    """Makes writers of the turn t1, each in the name of a token."""

    place: Place
    journal: SqliteJournal

    async def writer(self, token: int, **known: Any) -> LogWriter:
        """A writer that has just read the log; `known` is what the journal knows of the turn."""
        given = {"token": token, "seq_limit": RESERVED, **known}
        turn = replace(a_turn("t1", state=TurnState.RUNNING), **given)
        await self.journal.save(turn, None)
        ledger = Ledger(self.journal, SystemClock())
        pauses = Pauses(SystemClock(), RandomIds(), first_s=0.01, longest_s=0.1)
        tail = await self.place.log.tail(SUBJECT)
        return LogWriter(self.place.log, ledger, pauses, RESERVED, turn, tail)

    async def stored(self) -> list[tuple[int, int]]:
        """Return seq and token of every message."""
        found, js = [], self.place.client.jetstream()
        info = await self.place.ask(f"STREAM.INFO.{self.place.settings.name}")
        state = info["state"]
        for number in range(state["first_seq"], state["last_seq"] + 1):
            message = await js.get_msg(self.place.settings.name, number)
            assert message.headers is not None
            seq = json.loads(message.data or b"")["seq"]
            found.append((seq, int(message.headers["Vystak-Token"])))
        return found


@pytest.fixture
async def drivers(place: Place, tmp_path: Path) -> AsyncIterator[Drivers]:
    async with own_thread() as thread, opened(tmp_path / "turns.db", thread) as journal:
        await journal.create(a_turn("t1"), {"input": "Go."}, None)
        yield Drivers(place, journal)


async def test_a_rewind_goes_on_top_of_what_a_zombie_wrote_after_we_read(
    drivers: Drivers,
) -> None:
    zombie = await drivers.writer(OLD)
    await zombie.append(WORD)
    ours = await drivers.writer(NEW)
    await zombie.append(WORD)

    assert await ours.append(REWIND, rewinds_to=-1) == 2
    await ours.append(WORD)

    with pytest.raises(OvertakenError):
        await zombie.append(WORD)
    assert await drivers.stored() == [(0, OLD), (1, OLD), (2, NEW), (3, NEW)]


async def test_a_plan_that_a_zombie_spoilt_is_given_up_before_anything_is_written(
    drivers: Drivers,
) -> None:
    zombie = await drivers.writer(OLD)
    await zombie.append(WORD)
    ours = await drivers.writer(NEW)
    await zombie.append(WORD)

    with pytest.raises(LogMovedError):
        await ours.append(WORD)

    assert await drivers.stored() == [(0, OLD), (1, OLD)]


async def test_of_two_drivers_that_write_at_once_the_older_one_stops(drivers: Drivers) -> None:
    zombie = await drivers.writer(OLD)
    await zombie.append(WORD)
    ours = await drivers.writer(NEW)

    async def go_on(writer: LogWriter) -> None:
        await asyncio.gather(*(writer.append(WORD) for _ in range(20)))

    await ours.append(REWIND, rewinds_to=-1)
    results = await asyncio.gather(go_on(zombie), go_on(ours), return_exceptions=True)

    assert [type(result) for result in results] == [OvertakenError, type(None)]
    stored = await drivers.stored()
    assert [seq for seq, _ in stored] == list(range(22))
    assert [token for _, token in stored] == [OLD] + [NEW] * 21


async def test_an_append_that_landed_although_its_answer_was_late_is_not_repeated(
    drivers: Drivers,
) -> None:
    writer = await drivers.writer(NEW)
    await writer.append(WORD)
    await drivers.place.stall()
    try:
        late = asyncio.ensure_future(writer.append(WORD))
        done, _ = await asyncio.wait({late}, timeout=drivers.place.log._acks._timeout_s * 2)
        assert not done
    finally:
        drivers.place.go_on()

    assert await late == 1
    assert await writer.append(WORD) == 2
    assert await drivers.stored() == [(0, NEW), (1, NEW), (2, NEW)]


async def test_a_writer_outlives_the_age_of_its_log_without_using_a_seq_twice(
    bare: Place, tmp_path: Path
) -> None:
    await bare.client.jetstream().add_stream(
        name=bare.settings.name,
        subjects=[f"{BASE}.streams.>"],
        max_age=SECONDS_OF_AGE,
        duplicate_window=SECONDS_OF_AGE,
    )
    async with own_thread() as thread, opened(tmp_path / "turns.db", thread) as journal:
        await journal.create(a_turn("t1"), {"input": "Go."}, None)
        drivers = Drivers(bare, journal)
        writer = await drivers.writer(NEW)
        await writer.append(WORD)
        await writer.append(WORD)
        async for _ in ticks("the log is empty"):
            if await bare.count() == 0:
                break

        assert await writer.append(WORD) == 2
        assert await drivers.stored() == [(2, NEW)]


async def test_a_purged_log_is_gone_on_with_without_using_a_seq_twice(drivers: Drivers) -> None:
    writer = await drivers.writer(NEW)
    await writer.append(WORD)
    await drivers.place.purge()

    assert await writer.append(WORD) == 1
    assert await writer.append(WORD) == 2
    assert await drivers.stored() == [(1, NEW), (2, NEW)]


async def test_a_stream_that_was_deleted_is_made_again_and_gone_on_with(drivers: Drivers) -> None:
    writer = await drivers.writer(NEW)
    await writer.append(WORD)
    await writer.append(WORD)
    await drivers.place.ask(f"STREAM.DELETE.{drivers.place.settings.name}")

    assert await writer.append(WORD) == 2
    assert await drivers.stored() == [(2, NEW)]


async def test_a_stream_that_somebody_else_made_anew_is_gone_on_with(drivers: Drivers) -> None:
    """Its numbers begin again, so that the expectation fits another message or none."""
    writer = await drivers.writer(NEW)
    await writer.append(WORD)
    await writer.append(WORD)
    await drivers.place.ask(f"STREAM.DELETE.{drivers.place.settings.name}")
    subjects = [f"{BASE}.streams.>"]
    await drivers.place.client.jetstream().add_stream(
        name=drivers.place.settings.name, subjects=subjects
    )
    await drivers.place.put(b'{"seq":0,"event":{"type":"x"}}', subject=f"{BASE}.streams.c1.t2")

    assert await writer.append(WORD) == 2
    tail = await drivers.place.log.tail(SUBJECT)
    assert tail is not None
    assert (tail.seq, tail.token) == (2, NEW)


async def test_a_journal_that_is_ahead_of_a_lost_log_goes_on_above_all_that_it_reserved(
    drivers: Drivers,
) -> None:
    gone = await drivers.writer(OLD)
    for _ in range(3):
        await gone.append(WORD)
    await drivers.place.purge()
    ours = await drivers.writer(NEW, last_seq=2)

    assert await ours.append(WORD) == RESERVED
    turn = await drivers.journal.get("t1")
    assert turn is not None
    assert turn.seq_limit > RESERVED


async def test_a_log_that_is_ahead_of_its_journal_is_gone_on_with_and_reserved_first(
    drivers: Drivers,
) -> None:
    ahead = await drivers.writer(OLD)
    for _ in range(3):
        await ahead.append(WORD)
    ours = await drivers.writer(NEW, last_seq=-1, seq_limit=0)

    assert await ours.append(WORD) == 3
    turn = await drivers.journal.get("t1")
    assert turn is not None
    assert turn.seq_limit > 3
