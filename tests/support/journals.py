"""Journals on files and the turns that go into them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

from vystak_turns.adapters.journal_sqlite.journal import RunOnThread, SqliteJournal
from vystak_turns.adapters.system import OneThread
from vystak_turns.core.turn import Turn

T = TypeVar("T")

NOW_MS = 1_700_000_000_000


def a_turn(turn_id: str = "t1", **fields: Any) -> Turn:
    """A turn as it is when it was just asked for."""
    given = {
        "agent": "helper",
        "stream_subject": f"vystak.default.streams.c1.{turn_id}",
        "thread_id": f"resp_{turn_id}",
        "created_at_s": 100.0,
        "updated_at_s": 100.0,
    }
    return Turn(turn_id=turn_id, **{**given, **fields})


async def inline(work: Callable[[], T], /) -> T:
    """What the simulation uses in place of a thread."""
    return work()


@contextlib.asynccontextmanager
async def own_thread() -> AsyncIterator[RunOnThread]:
    """What the service uses."""
    thread = OneThread("journal of a test")
    try:
        yield thread
    finally:
        thread.close()


@contextlib.asynccontextmanager
async def opened(
    path: Path, run: RunOnThread, now_ms: int = NOW_MS, agent: str = ""
) -> AsyncIterator[SqliteJournal]:
    """An open journal that is closed at the end."""
    journal = SqliteJournal(path, run, agent)
    await journal.open(now_ms)
    try:
        yield journal
    finally:
        await journal.close()
