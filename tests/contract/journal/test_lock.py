from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from vystak_turns.adapters.file_lock import locked
from vystak_turns.adapters.system import SystemClock

ROOT = Path(__file__).parents[3]
HOLDER = """
import asyncio, sys
from pathlib import Path
from vystak_turns.adapters.file_lock import locked
from vystak_turns.adapters.system import SystemClock

async def main():
    async with locked(Path(sys.argv[1]), SystemClock(), lambda: None):
        print("held", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.processes
async def test_the_lock_of_a_living_process_is_waited_for_and_a_killed_one_frees_it(
    journal_path: Path,
) -> None:
    lock, waited = journal_path.with_name("turns.db.lock"), asyncio.Event()
    holder = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOLDER,
        str(lock),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ},
    )
    assert holder.stdout is not None

    async def take() -> None:
        async with locked(lock, SystemClock(), waited.set):
            pass

    try:
        async with asyncio.timeout(20):
            assert await holder.stdout.readline() == b"held\n"
            taking = asyncio.ensure_future(take())
            await waited.wait()
            assert not taking.done()
            holder.kill()
            await taking
    finally:
        if holder.returncode is None:
            holder.kill()
        await holder.wait()
