"""What an operator may do to the file of a journal that is in use."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support.journals import NOW_MS, a_turn, inline
from vystak_turns.adapters.journal_sqlite.journal import SqliteJournal
from vystak_turns.ports import JournalUnavailableError, NotOwnerError

if TYPE_CHECKING:
    from pathlib import Path


async def test_r5_nothing_is_acknowledged_into_a_file_that_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "turns.db"
    journal = SqliteJournal(path, inline)
    await journal.open(NOW_MS)
    await journal.create(a_turn("t1"), {"input": "hi"}, None)
    path.rename(tmp_path / "elsewhere.db")

    for turn_id in ("t2", "t3"):
        with pytest.raises(JournalUnavailableError):
            await journal.create(a_turn(turn_id), {"input": "hi"}, None)

    (tmp_path / "elsewhere.db").rename(path)
    await journal.create(a_turn("t4"), {"input": "hi"}, None)
    assert await journal.get("t4") is not None
    await journal.close()


async def test_a_file_that_another_process_has_taken_in_its_place_is_not_written_to(
    tmp_path: Path,
) -> None:
    path = tmp_path / "turns.db"
    journal = SqliteJournal(path, inline)
    await journal.open(NOW_MS)
    await journal.abandon()
    shutil.copy(path, tmp_path / "copy.db")
    await journal.open(NOW_MS)

    other = SqliteJournal(tmp_path / "copy.db", inline)
    for _ in range(3):
        await other.open(NOW_MS)
    await other.close()
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"turns.db{end}").unlink(missing_ok=True)
    (tmp_path / "copy.db").rename(path)

    with pytest.raises(JournalUnavailableError):
        await journal.create(a_turn("t2"), {"input": "hi"}, None)
    with pytest.raises(NotOwnerError):
        await journal.create(a_turn("t3"), {"input": "hi"}, None)
    await journal.abandon()
