"""The file itself: read from outside, made by others, opened again, full, owned by another."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.journals import NOW_MS, a_turn, inline, opened
from vystak_turns.adapters.journal_sqlite.journal import SqliteJournal
from vystak_turns.adapters.journal_sqlite.schema import OPEN_STATUSES
from vystak_turns.core.turn import Boundary, Failure, Intent, Park, Question
from vystak_turns.ports import BoundaryChange, JournalUnavailableError, NotOwnerError
from vystak_turns_rpc.vocabulary import TurnState, WireStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vystak_turns.adapters.journal_sqlite.journal import RunOnThread

ORIGINAL_TABLES = """
CREATE TABLE detached_turns (
    turn_id TEXT PRIMARY KEY, stream_subject TEXT NOT NULL, thread_id TEXT,
    request_json TEXT NOT NULL, status TEXT NOT NULL, last_seq INTEGER NOT NULL DEFAULT -1,
    boundary_seq INTEGER NOT NULL DEFAULT -1, attempts INTEGER NOT NULL DEFAULT 0,
    updated_at TEXT NOT NULL);
CREATE TABLE turn_boundaries (
    turn_id TEXT NOT NULL, checkpoint_id TEXT NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY (turn_id, checkpoint_id));
"""


@contextlib.contextmanager
def outside(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (TurnState.QUEUED, "running"),
        (TurnState.RUNNING, "running"),
        (TurnState.PROBING, "running"),
        (TurnState.CANCELLING, "running"),
        (TurnState.PARKED, "parked"),
        (TurnState.COMPLETED, "done"),
        (TurnState.FAILED, "failed"),
        (TurnState.CANCELLED, "failed"),
    ],
)
async def test_rows_can_be_read_from_outside_by_the_names_of_the_contract(
    journal: SqliteJournal, journal_path: Path, state: TurnState, status: str
) -> None:
    await journal.create(a_turn(), {"input": "hello"}, None)
    turn = a_turn(state=state, last_seq=4, boundary_seq=3, attempts=1, updated_at_s=7.5)
    await journal.save(turn, BoundaryChange(record=Boundary("ck1", 3)))

    with outside(journal_path) as connection:
        row = connection.execute(
            "SELECT turn_id, stream_subject, thread_id, request_json, status, last_seq, "
            "boundary_seq, attempts, updated_at FROM detached_turns"
        ).fetchone()
        boundaries = connection.execute(
            "SELECT turn_id, checkpoint_id, seq FROM turn_boundaries"
        ).fetchall()

    assert row[:3] == ("t1", "vystak.default.streams.c1.t1", "resp_t1")
    assert json.loads(row[3]) == {"input": "hello"}
    assert row[4:] == (status, 4, 3, 1, 7.5)
    assert boundaries == [("t1", "ck1", 3)]


async def test_everything_is_there_after_a_close_and_a_reopen(
    journal_path: Path, run: RunOnThread
) -> None:
    park = Park("ck1", 1, "i1", (Question("i1", {"a": [1]}),))
    turn = a_turn(state=TurnState.PARKED, park=park, generation=1, last_seq=12)
    ended = a_turn("t2", state=TurnState.FAILED, failure=Failure("odd_code", "half \ud800"))
    async with opened(journal_path, run) as journal:
        for each in (turn, ended):
            await journal.create(replace(each, state=TurnState.QUEUED), {"input": "x"}, None)
            await journal.save(each, BoundaryChange(record=Boundary("ck1", 12)))
        token = journal.new_token()
        await journal.save(replace(turn, token=token))

    async with opened(journal_path, run, now_ms=1) as journal:
        assert journal.unfinished() == (replace(turn, token=token),)
        assert journal.open_on_thread("helper", "resp_t1") == replace(turn, token=token)
        found = await journal.get("t2")
        assert found is not None
        assert found.failure == Failure("odd_code", "half ?")
        assert await journal.boundaries("t1") == (Boundary("ck1", 12),)
        assert journal.new_token() > token


async def test_tokens_of_a_new_journal_start_at_the_time_in_milliseconds(
    journal: SqliteJournal,
) -> None:
    assert journal.new_token() == NOW_MS + 1


async def test_a_restored_old_copy_repeats_no_token(journal_path: Path, run: RunOnThread) -> None:
    async with opened(journal_path, run):
        pass

    async with opened(journal_path, run, now_ms=NOW_MS + 5000) as journal:
        assert journal.new_token() > NOW_MS + 5000


async def test_a_journal_of_the_original_is_taken_over_in_place(
    journal_path: Path, run: RunOnThread
) -> None:
    with outside(journal_path) as connection:
        connection.executescript(ORIGINAL_TABLES)
        connection.executemany(
            "INSERT INTO detached_turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                ("r", "s.r", "resp_1", '{"input": "x"}', "running", 7, 5, 1, "1700000000.5"),
                ("p", "s.p", "resp_2", "{}", "parked", 3, 3, 0, "2024-01-02T03:04:05+00:00"),
                ("d", "s.d", "resp_3", "{}", "done", 9, 9, 0, "rubbish"),
                ("f", "s.f", "resp_4", "{}", "failed", 9, 9, 3, "0"),
                ("n", "s.n", None, '{"previous_response_id": "resp_5"}', "running", -1, -1, 0, ""),
                ("m", "s.m", None, "rubbish", "running", -1, -1, 0, ""),
            ],
        )
        connection.execute("INSERT INTO turn_boundaries VALUES ('r', 'ck1', 5)")

    for _ in range(2):
        async with opened(journal_path, run, agent="helper") as journal:
            assert {t.turn_id: t.state for t in journal.unfinished()} == dict.fromkeys(
                "rpnm", TurnState.PROBING
            )
            running, parked = await journal.get("r"), await journal.get("p")
            done, failed = await journal.get("d"), await journal.get("f")
            unnamed, rubbish = await journal.get("n"), await journal.get("m")
            assert running and parked and done and failed and unnamed and rubbish  # noqa: PT018
            assert (running.agent, running.thread_id) == ("helper", "resp_1")
            assert (running.last_seq, running.seq_limit, running.attempts) == (7, 9, 1)
            assert running.updated_at_s == 1_700_000_000.5
            assert parked.updated_at_s == 1_704_164_645.0
            assert (done.state, failed.state) == (TurnState.COMPLETED, TurnState.FAILED)
            assert unnamed.thread_id == "resp_5"
            assert rubbish.thread_id.startswith("resp_")
            assert len(rubbish.thread_id) == len("resp_") + 24
            assert await journal.boundaries("r") == (Boundary("ck1", 5),)
            assert await journal.request("r") == {"input": "x"}


async def test_of_several_unfinished_turns_of_the_original_on_a_thread_the_last_goes_on(
    journal_path: Path, run: RunOnThread
) -> None:
    rows = [
        ("parked", "resp_1", "parked"),
        ("ended", "resp_1", "done"),
        ("running", "resp_1", "running"),
        ("other", "resp_2", "parked"),
        ("last", "resp_1", "running"),
        ("failed", "resp_1", "failed"),
    ]
    with outside(journal_path) as connection:
        connection.executescript(ORIGINAL_TABLES)
        for turn_id, thread_id, status in rows:
            row = (turn_id, f"s.{turn_id}", thread_id, "{}", status, 3, 3, 0, 5.0)
            connection.execute("INSERT INTO detached_turns VALUES (?,?,?,?,?,?,?,?,?)", row)

    for _ in range(2):
        async with opened(journal_path, run, agent="helper") as journal:
            assert {t.turn_id: t.intent for t in journal.unfinished()} == {
                "parked": Intent.SUPERSEDED,
                "running": Intent.SUPERSEDED,
                "other": None,
                "last": None,
            }
            assert {t.turn_id: t.adopted_as for t in journal.unfinished()} == {
                "parked": WireStatus.PARKED,
                "running": WireStatus.RUNNING,
                "other": WireStatus.PARKED,
                "last": WireStatus.RUNNING,
            }
            holder = journal.open_on_thread("helper", "resp_1")
            assert holder is not None
            assert holder.turn_id == "last"


async def test_a_turn_of_ours_is_superseded_by_a_later_one_that_the_original_added(
    journal_path: Path, run: RunOnThread
) -> None:
    async with opened(journal_path, run) as journal:
        await journal.create(a_turn("ours"), {}, None)
    with outside(journal_path) as connection:
        thread_id, agent = connection.execute(
            "SELECT thread_id, agent FROM detached_turns"
        ).fetchone()
        connection.execute(
            "INSERT INTO detached_turns (turn_id, stream_subject, thread_id, request_json, status,"
            " updated_at) VALUES ('theirs', 's.t', ?, '{}', 'running', 9.0)",
            (thread_id,),
        )

    async with opened(journal_path, run, agent=agent) as journal:
        ours, theirs = await journal.get("ours"), await journal.get("theirs")
    assert ours is not None
    assert theirs is not None
    assert (ours.intent, theirs.intent) == (Intent.SUPERSEDED, None)
    assert (ours.adopted_as, theirs.adopted_as) == (None, WireStatus.RUNNING)


async def test_a_journal_of_a_newer_version_is_left_alone(journal_path: Path) -> None:
    async with opened(journal_path, inline):
        pass
    with outside(journal_path) as connection:
        connection.execute("UPDATE journal_meta SET value = 99 WHERE name = 'schema_version'")

    with pytest.raises(JournalUnavailableError, match="newer version"):
        await SqliteJournal(journal_path, inline).open(NOW_MS)


async def test_a_folder_that_is_not_there_is_an_ordinary_trouble(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "turns.db"
    journal = SqliteJournal(path, inline)
    with pytest.raises(JournalUnavailableError, match="unable to open"):
        await journal.open(NOW_MS)

    path.parent.mkdir()
    await journal.open(NOW_MS)
    await journal.create(a_turn(), {}, None)
    await journal.close()


async def test_a_former_owner_can_write_no_more(journal_path: Path, run: RunOnThread) -> None:
    async with opened(journal_path, run) as former:
        await former.create(a_turn(), {}, None)
        async with opened(journal_path, run) as owner:
            with pytest.raises(NotOwnerError, match="another process"):
                await former.save(a_turn(last_seq=5))
            with pytest.raises(NotOwnerError):
                await former.create(a_turn("t2"), {}, None)
            turn = await former.get("t1")
            assert turn is not None
            assert turn.last_seq == -1

            await owner.save(a_turn(last_seq=6))
            assert owner.unfinished() == (a_turn(last_seq=6),)


async def test_a_write_that_cannot_be_stored_fails_alone(journal: SqliteJournal) -> None:
    await journal.create(a_turn("good"), {}, None)
    await journal.create(a_turn("bad"), {}, None)

    results = await asyncio.gather(
        journal.save(a_turn("good", last_seq=1)),
        journal.save(a_turn("bad", last_seq=2**70), BoundaryChange(record=Boundary("x", 1))),
        journal.save(a_turn("bad", claimed_checkpoint="half \ud800")),
        journal.create(a_turn("new"), {}, None),
        return_exceptions=True,
    )

    assert [type(r) for r in results] == [
        type(None),
        JournalUnavailableError,
        JournalUnavailableError,
        type(None),
    ]
    assert journal.unfinished() == (a_turn("good", last_seq=1), a_turn("bad"), a_turn("new"))
    assert await journal.boundaries("bad") == ()


async def test_a_full_disk_fails_the_writes_and_later_ones_work_again(
    journal: SqliteJournal, journal_path: Path, run: RunOnThread
) -> None:
    await journal.create(a_turn(), {}, None)
    connection = journal._connection
    assert connection is not None
    await run(lambda: connection.execute("PRAGMA max_page_count = 1").fetchone())
    full = [journal.create(a_turn(f"full{n}"), {"input": "x" * 100_000}, None) for n in range(3)]

    results = await asyncio.gather(*full, return_exceptions=True)

    assert {type(r) for r in results} == {JournalUnavailableError}
    assert all("full" in str(r) for r in results)
    assert journal.unfinished() == (a_turn(),)
    assert await journal.get("full1") is None
    await journal.create(a_turn("later"), {}, None)
    with outside(journal_path) as reader:
        ids = reader.execute("SELECT turn_id FROM detached_turns ORDER BY turn_id").fetchall()
    assert ids == [("later",), ("t1",)]


async def test_a_file_locked_by_somebody_else_is_an_ordinary_trouble(
    journal: SqliteJournal, journal_path: Path, run: RunOnThread
) -> None:
    await journal.create(a_turn(), {}, None)
    connection = journal._connection
    assert connection is not None
    await run(lambda: connection.execute("PRAGMA busy_timeout = 1").fetchone())
    with outside(journal_path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalUnavailableError, match="locked"):
            await journal.save(a_turn(last_seq=1))
        assert journal.unfinished() == (a_turn(),)
        other.execute("ROLLBACK")

    await journal.save(a_turn(last_seq=2))
    assert journal.unfinished() == (a_turn(last_seq=2),)


async def test_a_deleted_file_is_never_replaced_by_an_empty_one(
    journal_path: Path, run: RunOnThread
) -> None:
    async with opened(journal_path, run) as journal:
        await journal.create(a_turn(), {}, None)
        await run(journal._close_file)
        await run(journal_path.unlink)

        with pytest.raises(JournalUnavailableError, match="unable to open"):
            await journal.save(a_turn(last_seq=1))
        with pytest.raises(JournalUnavailableError):
            await journal.get("ended")

    assert not await run(journal_path.exists)


async def test_a_closed_journal_takes_nothing(journal_path: Path, run: RunOnThread) -> None:
    async with opened(journal_path, run) as journal:
        queued = asyncio.ensure_future(journal.create(a_turn(), {}, None))
        await asyncio.sleep(0)
    await queued

    with pytest.raises(JournalUnavailableError, match="not open"):
        await journal.save(a_turn())
    async with opened(journal_path, run) as again:
        assert again.unfinished() == (a_turn(),)


async def test_an_abandoned_journal_drops_what_is_queued(journal_path: Path) -> None:
    journal = SqliteJournal(journal_path, inline)
    await journal.open(NOW_MS)
    queued = asyncio.ensure_future(journal.create(a_turn(), {}, None))
    await asyncio.sleep(0)

    await journal.abandon()

    with pytest.raises(JournalUnavailableError, match="closed"):
        await queued
    async with opened(journal_path, inline) as again:
        assert again.unfinished() == ()


async def test_many_writes_share_one_commit(journal_path: Path) -> None:
    statements: list[str] = []
    async with opened(journal_path, inline) as journal:
        await journal.create(a_turn("first"), {}, None)
        connection = journal._connection
        assert connection is not None
        connection.set_trace_callback(statements.append)

        await asyncio.gather(*(journal.create(a_turn(f"t{n}"), {}, None) for n in range(100)))

    assert 1 <= statements.count("COMMIT") <= 2


async def test_open_turns_are_found_by_the_partial_index(
    journal: SqliteJournal, journal_path: Path
) -> None:
    with outside(journal_path) as connection:
        plan = connection.execute(
            f"EXPLAIN QUERY PLAN SELECT turn_id FROM detached_turns WHERE {OPEN_STATUSES}"
        ).fetchall()

    assert "detached_turns_open" in str(plan)


async def test_commits_survive_a_loss_of_power(journal: SqliteJournal, run: RunOnThread) -> None:
    connection = journal._connection
    assert connection is not None
    full = 2

    assert await run(lambda: connection.execute("PRAGMA synchronous").fetchone()) == (full,)
    assert await run(lambda: connection.execute("PRAGMA journal_mode").fetchone()) == ("wal",)
