"""One process at a time has the journal: a lock on a file beside it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from vystak_turns.ports import Clock


class JournalLock:
    """An exclusive lock on `<turns.db>.lock`, held from `acquire` to `release`.

    The lock is on a file of its own, since SQLite locks and replaces its own ones. The system
    gives it back when the process ends, however it ends.
    """

    def __init__(self, journal: Path, clock: Clock, retry_s: float = 0.2) -> None:
        self.path = journal.with_name(f"{journal.name}.lock")
        self._clock = clock
        self._retry_s = retry_s
        self._file: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process has the journal."""
        return self._file is not None

    def try_acquire(self) -> bool:
        """Take the lock unless somebody has it.

        Raises:
            OSError: the lock file cannot be made.

        """
        if self._file is not None:
            return True
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return True

    async def acquire(self) -> None:
        """Wait until the lock is ours; there is no end to the waiting.

        Raises:
            OSError: the lock file cannot be made.

        """
        while not self.try_acquire():
            await self._clock.sleep(self._retry_s)

    def release(self) -> None:
        """Give the lock back. The file stays: removing it would let two processes hold two."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
