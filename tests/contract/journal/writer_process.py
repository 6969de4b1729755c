"""A process that writes to a journal until it is killed, and prints what was acknowledged."""

from __future__ import annotations

import asyncio
import itertools
import sys
from dataclasses import replace
from pathlib import Path

from tests.support.journals import a_turn, opened, own_thread
from vystak_turns.adapters.journal_sqlite.journal import SqliteJournal
from vystak_turns.core.turn import Boundary
from vystak_turns.ports import BoundaryChange

WRITERS = 8


async def write(journal: SqliteJournal, name: str) -> None:
    turn = a_turn(name)
    await journal.create(turn, {"input": name}, None)
    for seq in itertools.count():
        token = journal.new_token()
        turn = replace(turn, last_seq=seq, boundary_seq=seq, token=token)
        await journal.save(turn, BoundaryChange(record=Boundary(f"ck{seq}", seq)))
        sys.stdout.write(f"{name} {seq} {token}\n")
        sys.stdout.flush()


async def main(path: Path) -> None:
    async with own_thread() as run, opened(path, run) as journal, asyncio.TaskGroup() as group:
        for number in range(WRITERS):
            group.create_task(write(journal, f"t{number}"))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
