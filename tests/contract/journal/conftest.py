from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.journals import inline, opened, own_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from vystak_turns.adapters.journal_sqlite.journal import RunOnThread, SqliteJournal


@pytest.fixture
def journal_path(tmp_path: Path) -> Path:
    return tmp_path / "turns.db"


@pytest.fixture(params=["own thread", "inline"])
async def run(request: pytest.FixtureRequest) -> AsyncIterator[RunOnThread]:
    if request.param == "inline":
        yield inline
        return
    async with own_thread() as thread:
        yield thread


@pytest.fixture
async def journal(journal_path: Path, run: RunOnThread) -> AsyncIterator[SqliteJournal]:
    async with opened(journal_path, run) as journal:
        yield journal
