"""A persister in a process of its own, which kills itself at a given point of its work.

    python -m tests.support.persister_process URL DB CONVERSATION TURN SUBJECT KILL_AT

Points are: each message that was read; right before, in the middle of and right after each call of
the store. Turn control is not there: the log alone must do.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

from vystak_turns_client.connection import connect, disconnect
from vystak_turns_client.errors import NoResponders
from vystak_turns_client.persister import Persister
from vystak_turns_client.persister_log import NatsLog
from vystak_turns_client.persister_sqlite import SqliteStorage
from vystak_turns_client.retained import LoggedMessage
from vystak_turns_client.storage import ActiveTurn, Storage
from vystak_turns_rpc.methods import TurnStatusResult


class Fate:
    """Counts the points and kills the process at the last one."""

    def __init__(self, kill_at: int) -> None:
        """Live through `kill_at` points."""
        self._left = kill_at

    def point(self) -> None:
        """Die here, if it is time."""
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


class MortalStore:
    """The store, with points around and within every call."""

    def __init__(self, store: SqliteStorage, fate: Fate) -> None:
        """Calls go to `store`."""
        self._store = store
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        """Wrap a method."""
        method = getattr(self._store, name)

        async def call(*args: Any) -> Any:
            self._fate.point()
            going_on = asyncio.ensure_future(method(*args))
            await asyncio.sleep(0)
            self._fate.point()
            answer = await going_on
            self._fate.point()
            return answer

        return call


class MortalLog:
    """The log, with a point at every message."""

    def __init__(self, log: NatsLog, fate: Fate) -> None:
        """Messages come from `log`."""
        self._log = log
        self._fate = fate

    async def follow(
        self, subject: str, after_stream_seq: int, idle_s: float
    ) -> AsyncGenerator[LoggedMessage, None]:
        """Yield the messages of the log."""
        async for message in self._log.follow(subject, after_stream_seq, idle_s):
            self._fate.point()
            yield message

    async def rest(self, subject: str, after_stream_seq: int) -> list[LoggedMessage]:
        """Return what the log does."""
        return await self._log.rest(subject, after_stream_seq)


async def nobody_answers(_: str) -> TurnStatusResult:
    """Be turn control that is not there."""
    raise NoResponders("turn control is not there")


async def main(url: str, path: str, turn: ActiveTurn, kill_at: int) -> None:
    """Attend the turn to its end, or die."""
    fate = Fate(kill_at)
    nc = await connect(url)
    async with SqliteStorage(Path(path), time.time) as store:
        mortal = cast("Storage", MortalStore(store, fate))
        log = MortalLog(NatsLog(nc.jetstream()), fate)
        await Persister(mortal, log, nobody_answers, time.monotonic).run(turn)
    await disconnect(nc)


if __name__ == "__main__":
    _, address, database, conversation_id, turn_id, turn_subject, points = sys.argv
    asyncio.run(
        main(address, database, ActiveTurn(conversation_id, turn_id, turn_subject), int(points))
    )
