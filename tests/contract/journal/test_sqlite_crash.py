from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.journals import NOW_MS, a_turn, inline, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[3]
ENOUGH_LINES = 300


@contextlib.asynccontextmanager
async def writer(path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.contract.journal.writer_process",
        str(path),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait_for(process.wait(), 10)


@pytest.mark.processes
@pytest.mark.parametrize("lines", [1, 20, ENOUGH_LINES])
async def test_nothing_acknowledged_is_lost_by_a_kill_in_the_middle_of_commits(
    journal_path: Path, lines: int
) -> None:
    acknowledged: dict[str, tuple[int, int]] = {}
    async with writer(journal_path) as process:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            for _ in range(lines):
                _note(acknowledged, await process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            for line in (await process.stdout.read()).splitlines():
                _note(acknowledged, line)

    async with opened(journal_path, inline, now_ms=1) as journal:
        highest = journal.new_token()
        for name, (seq, token) in acknowledged.items():
            turn = await journal.get(name)
            assert turn is not None
            boundaries = await journal.boundaries(name)
            assert turn.last_seq >= seq
            # Row and boundaries were committed together, or not at all.
            assert [b.seq for b in boundaries] == list(range(turn.last_seq + 1))
            assert highest > turn.token >= token
        await journal.create(a_turn("later"), {}, None)


def _note(acknowledged: dict[str, tuple[int, int]], line: bytes) -> None:
    parts = line.decode().split()
    if len(parts) == 3:
        name, seq, token = parts
        acknowledged[name] = (int(seq), int(token))


@pytest.mark.processes
async def test_a_process_lives_through_a_file_that_may_grow_no_more(journal_path: Path) -> None:
    script = """
import asyncio, resource, sys
from pathlib import Path
from tests.support.journals import a_turn, opened, own_thread
from vystak_turns.ports import JournalUnavailableError

async def main():
    async with own_thread() as run, opened(Path(sys.argv[1]), run) as journal:
        await journal.create(a_turn("before"), {}, None)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        try:
            await journal.create(a_turn("big"), {"input": "x" * 400_000}, None)
        except JournalUnavailableError:
            print("refused")
        assert await journal.get("big") is None
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        await journal.create(a_turn("after"), {}, None)
        print([t.turn_id for t in journal.unfinished()])

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        str(journal_path),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    output, _ = await asyncio.wait_for(process.communicate(), 30)

    assert output.decode().splitlines() == ["refused", "['before', 'after']"]
    async with opened(journal_path, inline, NOW_MS) as journal:
        assert {t.turn_id for t in journal.unfinished()} == {"before", "after"}
