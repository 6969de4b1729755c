"""The journal in one SQLite file, written by one task that groups commits.

Whoever wants something written puts it into a queue and waits. The writer takes all that is queued
and commits it as one transaction, so that a hundred turns pay for one sync. Each write has a
savepoint of its own: one that fails, fails alone. What the memory answers is changed only after
the commit, hence never promises what a crash could take back.

The connection is used on one thread only (`run`), and holds nothing that would outlive a failure:
after an error that leaves it in doubt it is opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from vystak_turns.adapters.journal_sqlite import rows, schema
from vystak_turns.adapters.journal_sqlite.live import LiveTurns
from vystak_turns.core.turn import Boundary, Json, Turn
from vystak_turns.ports import BoundaryChange, JournalUnavailableError, NotOwnerError

T = TypeVar("T")


class RunOnThread(Protocol):
    """Runs work on the one thread that owns the connection, one piece after the other."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run `work` and return what it returns."""
        ...


@dataclass(frozen=True, slots=True)
class _Write:
    """One write that waits for its commit; `apply` tells whether it changed anything."""

    apply: Callable[[sqlite3.Connection], bool]
    publish: tuple[Turn, ...]
    done: asyncio.Future[None]


class SqliteJournal:
    """`ports.Journal` on a SQLite file.

    `agent` is the name that rows of an earlier journal get, which name none.
    """

    def __init__(
        self, path: Path, run: RunOnThread, agent: str = "", max_group: int = 1000
    ) -> None:
        self._path = path
        self._run = run
        self._agent = agent
        self._max_group = max_group
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._owner_epoch = 0
        self._token = 0
        self._stored_token = 0
        self._live = LiveTurns()
        self._queue: list[_Write] = []
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._closing = False

    async def open(self, now_ms: int) -> None:
        """Become the owner of the file and read the turns that have not ended.

        Tokens start above `now_ms` (milliseconds since the epoch), so that a journal that was
        lost, or restored from an old copy, never repeats one that an agent's threads know.

        Raises:
            JournalUnavailableError: the file cannot be used; call it again later.

        """
        turns = await self._ask(lambda: self._open_file(now_ms))
        for turn in turns:
            self._live.put(turn)
        self._token = self._stored_token
        self._closing = False
        self._writer = asyncio.create_task(self._write(), name="journal writer")

    async def close(self) -> None:
        """Commit what is queued, then close the file."""
        self._closing = True
        self._wake.set()
        if self._writer is not None:
            await self._writer
        await self.abandon()

    async def abandon(self) -> None:
        """Close the file and drop what is queued, as a crash would."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer
        for write in self._take():
            _settle(write, JournalUnavailableError("the journal is closed"))
        await self._run(self._close_file)

    async def create(self, turn: Turn, request: Json, superseded: Turn | None) -> None:
        """Commit a new turn and the changed row of the one it ends; a taken id changes nothing."""
        request_json = rows.dump(request)

        def apply(connection: sqlite3.Connection) -> bool:
            created = rows.insert(connection, turn, request_json)
            if created and superseded is not None:
                rows.update(connection, superseded)
            return created

        published = (turn,) if superseded is None else (turn, superseded)
        await self._submit(apply, published)

    async def save(self, turn: Turn, boundaries: BoundaryChange | None = None) -> None:
        """Commit a turn's changed row and boundaries; an unknown turn changes nothing."""

        def apply(connection: sqlite3.Connection) -> bool:
            known = rows.update(connection, turn)
            if known and boundaries is not None:
                rows.change_boundaries(connection, turn.turn_id, boundaries)
            return known

        await self._submit(apply, (turn,))

    async def get(self, turn_id: str) -> Turn | None:
        """Return the committed turn: from memory while it has not ended, else from the file."""
        live = self._live.get(turn_id)
        if live is not None:
            return live
        return await self._ask(lambda: rows.select(self._connected(), turn_id))

    async def request(self, turn_id: str) -> Json:
        """Return the request as the caller sent it; `None` for an unknown turn."""
        return await self._ask(lambda: rows.select_request(self._connected(), turn_id))

    async def boundaries(self, turn_id: str) -> tuple[Boundary, ...]:
        """Return the recorded boundaries, oldest first."""
        return await self._ask(lambda: rows.select_boundaries(self._connected(), turn_id))

    def open_on_thread(self, agent: str, thread_id: str) -> Turn | None:
        """Return the turn that holds the thread."""
        turns = self._live.on_thread(agent, thread_id)
        return next((turn for turn in turns if turn.holds_thread), None)

    def blocking_thread(self, agent: str, thread_id: str, turn_id: str) -> Turn | None:
        """Return another turn of the thread that has not ended."""
        turns = self._live.on_thread(agent, thread_id)
        return next((turn for turn in turns if turn.turn_id != turn_id), None)

    def unfinished(self) -> tuple[Turn, ...]:
        """Return every turn that has not ended, in order of creation."""
        return self._live.all()

    def new_token(self, at_least: int = 0) -> int:
        """Return a token that nobody had before; it is committed with the next write."""
        self._token = max(self._token + 1, at_least)
        return self._token

    async def _submit(
        self, apply: Callable[[sqlite3.Connection], bool], publish: tuple[Turn, ...]
    ) -> None:
        if self._writer is None or self._closing:
            raise JournalUnavailableError("the journal is not open")
        write = _Write(apply, publish, asyncio.get_running_loop().create_future())
        self._queue.append(write)
        self._wake.set()
        await write.done

    async def _write(self) -> None:
        while not self._closing:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                await self._commit()

    def _take(self) -> list[_Write]:
        group = self._queue[: self._max_group]
        del self._queue[: self._max_group]
        return group

    async def _commit(self) -> None:
        group, token = self._take(), self._token
        try:
            results = await self._ask(lambda: self._commit_on_thread(group, token))
        except JournalUnavailableError as error:
            for write in group:
                _settle(write, error)
            return
        except asyncio.CancelledError:
            for write in group:
                _settle(write, JournalUnavailableError("the journal was closed meanwhile"))
            raise
        self._stored_token = max(self._stored_token, token)
        for write, result in zip(group, results, strict=True):
            if result is True:
                self._publish(write.publish)
            _settle(write, result if isinstance(result, Exception) else None)

    def _publish(self, turns: tuple[Turn, ...]) -> None:
        for turn in turns:
            self._live.put(turn)

    async def _ask(self, work: Callable[[], T]) -> T:
        """Run work on the thread; every failure becomes the port's error."""
        try:
            return await self._run(work)
        except JournalUnavailableError:
            raise
        except Exception as error:
            raise JournalUnavailableError(
                f"the journal {self._path} cannot be used now: {error}"
            ) from error

    # --- from here on: on the thread that owns the connection ----------------------------------

    def _open_file(self, now_ms: int) -> list[Turn]:
        self._close_file()
        connection = schema.connect(str(self._path), create=True)
        try:
            self._owner_epoch = schema.take_over(connection, now_ms, self._agent)
            self._stored_token = schema.read_meta(connection, "token")
            turns = rows.select_open(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._file = connection, self._file_at_path()
        return turns

    def _close_file(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> sqlite3.Connection:
        if self._owner_epoch == 0:
            raise JournalUnavailableError("the journal is not open")
        if self._connection is None:
            # Never made anew here: an empty file in its place would look like a lost journal.
            self._connection = schema.connect(str(self._path), create=False)
            self._file = self._file_at_path()
        return self._connection

    def _file_at_path(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_dev, found.st_ino

    def _check_file(self) -> None:
        """A file that was removed can still be written to, and all of it would be lost."""
        if self._file_at_path() != self._file:
            raise FileNotFoundError(errno.ENOENT, "another file is in its place", str(self._path))

    def _commit_on_thread(self, group: list[_Write], token: int) -> list[bool | Exception]:
        try:
            connection = self._connected()
            self._check_file()
            with schema.transaction(connection):
                self._check_owner(connection)
                results = [_apply(connection, write) for write in group]
                if token > self._stored_token:
                    schema.write_meta(connection, "token", token)
        except NotOwnerError:
            raise
        except Exception:
            # Whatever state the failure left behind goes away with the connection.
            with contextlib.suppress(sqlite3.Error):
                self._close_file()
            raise
        return results

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        owner = schema.read_meta(connection, "owner_epoch")
        if owner != self._owner_epoch:
            raise NotOwnerError(
                f"another process has taken the journal {self._path}: stop this one"
            )


def _apply(connection: sqlite3.Connection, write: _Write) -> bool | Exception:
    connection.execute("SAVEPOINT one_write")
    try:
        changed = write.apply(connection)
    except (sqlite3.Error, ValueError, OverflowError) as error:
        if not connection.in_transaction:
            raise  # a full disk undoes the whole transaction by itself
        connection.execute("ROLLBACK TO one_write")
        connection.execute("RELEASE one_write")
        unavailable = JournalUnavailableError(f"a turn cannot be stored: {error}")
        unavailable.__cause__ = error
        return unavailable
    connection.execute("RELEASE one_write")
    return changed


def _settle(write: _Write, error: Exception | None) -> None:
    if write.done.done():
        return
    if error is None:
        write.done.set_result(None)
    else:
        write.done.set_exception(error)
