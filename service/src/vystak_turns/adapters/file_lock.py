"""A lock file: one process at a time on one journal."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from vystak_turns.ports import Clock

POLL_S: Final = 0.2


@contextlib.asynccontextmanager
async def locked(file: Path, clock: Clock, on_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Wait until nobody else holds the lock, and hold it; the end of the process frees it, too.

    The file is a separate one and stays: SQLite's own locks go away when any handle of the
    database file is closed, and a lock file that is removed can be locked by two.
    `on_wait` is called once if it has to be waited for.
    Raises OSError when the file cannot be made.
    """
    with file.open("a") as handle:
        if not _try(handle.fileno()):
            on_wait()
            while not _try(handle.fileno()):
                await clock.sleep(POLL_S)
        yield


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
