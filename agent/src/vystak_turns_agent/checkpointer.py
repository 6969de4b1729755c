"""Where threads are kept: which file, whose it is, and whose fault a failing write is."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

DATA_DIRECTORY: Final = Path("/data")


_STAMPS_SQL: Final = """
    SELECT json_extract(CAST(metadata AS TEXT), '$.turn_id') AS turn_id,
           MAX(json_extract(CAST(metadata AS TEXT), '$.epoch'))
    FROM checkpoints
    WHERE thread_id = ? AND checkpoint_ns = ''
    GROUP BY turn_id
    HAVING turn_id IS NOT NULL
    ORDER BY MIN(checkpoint_id)
"""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a turn left on a thread: its id and the highest epoch that it ran under."""

    turn_id: str
    epoch: int


class SaverError(Exception):
    """The checkpointer failed, not the graph: such a run never ends in `response.failed`."""


class SessionsSaver(AsyncSqliteSaver):
    """LangGraph's own SQLite saver; its errors carry their origin.

    It also knows which tasks of the step in flight have their results on disk.
    """

    def __init__(self, conn: aiosqlite.Connection) -> None:
        """Use an open connection; `setup` makes the tables."""
        super().__init__(conn)
        self._results: dict[str, set[str]] = {}
        self._told = asyncio.Event()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint; raises SaverError."""
        with _blamed():
            return await super().aget_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the saver's own name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """List checkpoints, newest first; raises SaverError."""
        with _blamed():
            found = super().alist(config, filter=filter, before=before, limit=limit)
            async for item in found:
                yield item

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; raises SaverError."""
        with _blamed():
            stored = await super().aput(config, checkpoint, metadata, new_versions)
        if not config["configurable"].get("checkpoint_ns"):
            self._results.pop(config["configurable"]["thread_id"], None)
        return stored

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store a task's results; raises SaverError."""
        with _blamed():
            await super().aput_writes(config, writes, task_id, task_path)
        if not config["configurable"].get("checkpoint_ns"):
            self._results.setdefault(config["configurable"]["thread_id"], set()).add(task_id)
            self._told.set()
            self._told = asyncio.Event()

    async def results_stored(self, thread_id: str, task_id: str, longest_s: float) -> None:
        """Wait until the results of a task of the step in flight are on disk.

        LangGraph streams them a moment before it stores them; what a reader was told of would run
        again after a kill in that moment (R4). A saver in trouble ends the run by itself, so the
        wait is bounded.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                while task_id not in self._results.get(thread_id, ()):
                    await self._told.wait()

    async def stamps(self, thread_id: str) -> list[Stamp]:
        """Return the turns that stamped the thread's root checkpoints, oldest first.

        One query that leaves the messages alone: a long thread has megabytes of them.
        """
        with _blamed():
            await self.setup()
            async with self.lock, self.conn.execute(_STAMPS_SQL, (thread_id,)) as cursor:
                return [Stamp(str(turn_id), int(epoch or 0)) async for turn_id, epoch in cursor]


@contextlib.asynccontextmanager
async def opened_saver(path: Path) -> AsyncIterator[SessionsSaver]:
    """Open the file (made when absent) with its tables in place; close it at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    async with aiosqlite.connect(path) as connection:
        saver = SessionsSaver(connection)
        await saver.setup()
        yield saver


@contextlib.asynccontextmanager
async def held_lock(path: Path, retry_s: float) -> AsyncIterator[None]:
    """Hold `<path>.lock`, waiting until its present holder is gone.

    Two agents on one volume would run one thread twice, so the second waits (R13). The kernel
    frees the lock of a killed process; a file without a holder is no obstacle.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # The kernel tells nobody that a lock came free, so there is nothing to wait on but time.
        while not _try_lock(descriptor):  # noqa: ASYNC110
            await asyncio.sleep(retry_s)
        yield
    finally:
        os.close(descriptor)


def resolve_sessions_path(
    override: str | None,
    data_directory: Path = DATA_DIRECTORY,
    temporary_directory: Path | None = None,
) -> Path:
    """Choose the file: the override, else the volume at /data, else the temp directory."""
    if override:
        return Path(override)
    if data_directory.is_dir() and os.access(data_directory, os.W_OK):
        return data_directory / "sessions.db"
    return (temporary_directory or Path(tempfile.gettempdir())) / "vystak-sessions.db"


def is_saver_trouble(error: BaseException) -> bool:
    """Tell whether the checkpointer is behind an error, however deep."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        if isinstance(current, SaverError):
            return True
        seen.add(id(current))
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
    return False


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _blamed() -> Iterator[None]:
    try:
        yield
    except SaverError:
        raise
    except Exception as error:
        raise SaverError(f"the checkpointer failed: {error}") from error
