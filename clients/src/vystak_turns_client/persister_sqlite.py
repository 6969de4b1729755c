"""The storage port on SQLite: all that the example panel keeps."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from vystak_turns_client.fold import Approval
from vystak_turns_client.storage import ActiveTurn, MessageRow, Part, RowState, Storage

T = TypeVar("T")

BUSY_TIMEOUT_S: Final = 5.0

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS conversations (
    conversation_id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    created_at REAL NOT NULL,
    last_response_id TEXT,
    active_turn_id TEXT
);
-- stage: active, resting, given_up, ended
CREATE TABLE IF NOT EXISTS turns (
    turn_id TEXT PRIMARY KEY,
    conversation_id TEXT NOT NULL,
    subject TEXT NOT NULL,
    stage TEXT NOT NULL DEFAULT 'active',
    approval TEXT
);
CREATE INDEX IF NOT EXISTS turns_by_stage ON turns (stage, conversation_id);
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY,
    conversation_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    parts TEXT NOT NULL,
    state TEXT NOT NULL,
    error TEXT,
    created_at REAL NOT NULL,
    UNIQUE (turn_id, role)
);
CREATE INDEX IF NOT EXISTS messages_by_conversation ON messages (conversation_id, id);
"""

_SAVE_ROW: Final = """
INSERT INTO messages (conversation_id, turn_id, role, content, parts, state, error, created_at)
VALUES (?, ?, 'assistant', ?, ?, ?, ?, ?)
ON CONFLICT (turn_id, role) DO UPDATE SET
    content = excluded.content, parts = excluded.parts,
    state = excluded.state, error = excluded.error
WHERE messages.state NOT IN ('done', 'failed') OR excluded.state IN ('done', 'failed')
"""

_CONVERSATIONS: Final = """
SELECT c.conversation_id, c.title, c.created_at, c.last_response_id, t.turn_id, t.subject
FROM conversations c LEFT JOIN turns t ON t.turn_id = c.active_turn_id
"""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation; times are in seconds since the Unix epoch."""

    conversation_id: str
    title: str
    created_at: float
    last_response_id: str | None
    active_turn: ActiveTurn | None


@dataclass(frozen=True, slots=True)
class Message:
    """One message, the user's (`role` "user") or a turn's ("assistant", `state` a RowState)."""

    role: str
    content: str
    parts: tuple[Part, ...]
    turn_id: str
    state: str
    error: str | None
    created_at: float


class SqliteStorage(Storage):
    """`async with SqliteStorage(path, clock) as storage`; the port's methods and these.

    `clock` gives seconds since the Unix epoch (`time.time`). All work is done in one thread of its
    own, each method in one transaction that is on disk when the method returns.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """Open nothing yet."""
        self._path = path
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="panel-store")
        self._db: sqlite3.Connection | None = None

    async def __aenter__(self) -> Self:
        self._db = await asyncio.get_running_loop().run_in_executor(self._thread, self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._db is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._db.close)
        self._thread.shutdown()

    # What the panel needs besides the port.

    async def create_conversation(self, conversation_id: str, title: str) -> None:
        """Keep a new conversation; harmless if it is there already."""
        await self._do(
            "INSERT INTO conversations (conversation_id, title, created_at) VALUES (?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            (conversation_id, title, self._clock()),
        )

    async def conversation(self, conversation_id: str) -> Conversation | None:
        """Return one conversation."""
        rows = await self._ask(_CONVERSATIONS + "WHERE c.conversation_id = ?", (conversation_id,))
        return _conversation(rows[0]) if rows else None

    async def conversations(self) -> list[Conversation]:
        """Return all conversations, the latest first."""
        rows = await self._ask(_CONVERSATIONS + "ORDER BY c.created_at DESC, c.rowid DESC")
        return [_conversation(row) for row in rows]

    async def rename(self, conversation_id: str, title: str) -> None:
        """Give a conversation another title."""
        await self._do(
            "UPDATE conversations SET title = ? WHERE conversation_id = ?",
            (title, conversation_id),
        )

    async def begin_turn(self, turn: ActiveTurn, text: str) -> None:
        """Keep the user's message and make the turn the active one, before it is dispatched.

        Raises ValueError while another turn is active, unless that one waits on a question: it is
        superseded (R13), and attended until its end.
        """
        await self._run(lambda db: self._begin(db, turn, text))

    async def messages(self, conversation_id: str) -> list[Message]:
        """Return a conversation's messages, the oldest first."""
        rows = await self._ask(
            "SELECT role, content, parts, turn_id, state, error, created_at FROM messages"
            " WHERE conversation_id = ? ORDER BY id",
            (conversation_id,),
        )
        return [
            Message(role, content, tuple(json.loads(parts)), turn_id, state, error, created_at)
            for role, content, parts, turn_id, state, error, created_at in rows
        ]

    async def pending_approval(self, turn_id: str) -> Approval | None:
        """Return the question that a turn waits on."""
        rows = await self._ask("SELECT approval FROM turns WHERE turn_id = ?", (turn_id,))
        return Approval(**json.loads(rows[0][0])) if rows and rows[0][0] else None

    # The port.

    async def active_turns(self) -> list[ActiveTurn]:
        """Return the turns that have not ended, were not given up and do not rest."""
        rows = await self._ask(
            "SELECT conversation_id, turn_id, subject FROM turns WHERE stage = 'active'"
        )
        return [ActiveTurn(*row) for row in rows]

    async def row(self, turn_id: str) -> MessageRow | None:
        """Return the turn's row, if it has one."""
        rows = await self._ask(
            "SELECT m.conversation_id, m.turn_id, t.subject, m.content, m.parts, m.state, m.error"
            " FROM messages m JOIN turns t ON t.turn_id = m.turn_id"
            " WHERE m.turn_id = ? AND m.role = 'assistant'",
            (turn_id,),
        )
        if not rows:
            return None
        conversation_id, turn_id, subject, content, parts, state, error = rows[0]
        turn = ActiveTurn(conversation_id, turn_id, subject)
        return MessageRow(turn, content, tuple(json.loads(parts)), RowState(state), error)

    async def save_row(self, row: MessageRow) -> None:
        """Insert the turn's row or replace it; a final row is only replaced by a final one."""
        turn, parts = row.turn, json.dumps(row.parts)
        ids = (turn.conversation_id, turn.turn_id)
        said = (row.content, parts, row.state, row.error, self._clock())
        await self._do(_SAVE_ROW, (*ids, *said))

    async def set_pending_approval(self, turn: ActiveTurn, approval: Approval | None) -> None:
        """Keep the question that the turn waits on, or None once it waits on nothing."""
        text = None if approval is None else json.dumps(_fields(approval))
        await self._do("UPDATE turns SET approval = ? WHERE turn_id = ?", (text, turn.turn_id))

    async def set_last_response_id(self, conversation_id: str, response_id: str) -> None:
        """Keep the thread that the conversation's next turn goes on with."""
        await self._do(
            "UPDATE conversations SET last_response_id = ? WHERE conversation_id = ?",
            (response_id, conversation_id),
        )

    async def clear_active_turn(self, turn: ActiveTurn) -> None:
        """Note that the turn has ended; the conversation has no active turn if it was this one."""
        await self._run(lambda db: _leave(db, turn, "ended", ("active", "resting", "given_up")))

    async def give_up(self, turn: ActiveTurn) -> None:
        """Do the same for a turn without an end in its log: it stays unsettled until cleared."""
        await self._run(lambda db: _leave(db, turn, "given_up", ("active", "resting")))

    async def put_to_rest(self, turn: ActiveTurn) -> None:
        """Leave the turn active, without a persister until `wake`."""
        await self._do(
            "UPDATE turns SET stage = 'resting' WHERE turn_id = ? AND stage = 'active'",
            (turn.turn_id,),
        )

    async def wake(self, turn: ActiveTurn) -> bool:
        """Take the turn back from its rest; tell whether it was at rest."""
        changed = await self._do(
            "UPDATE turns SET stage = 'active' WHERE turn_id = ? AND stage = 'resting'",
            (turn.turn_id,),
        )
        return changed > 0

    async def unsettled_turns(self, conversation_id: str) -> list[ActiveTurn]:
        """Return the conversation's turns that rest or were given up: see `look_again`."""
        rows = await self._ask(
            "SELECT conversation_id, turn_id, subject FROM turns"
            " WHERE stage IN ('resting', 'given_up') AND conversation_id = ?",
            (conversation_id,),
        )
        return [ActiveTurn(*row) for row in rows]

    def _open(self) -> sqlite3.Connection:
        # Transactions are ours: the driver's own leave a connection in one without saying so.
        db = sqlite3.connect(
            self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(_SCHEMA)
        return db

    def _begin(self, db: sqlite3.Connection, turn: ActiveTurn, text: str) -> None:
        busy = db.execute(
            "SELECT t.turn_id FROM conversations c JOIN turns t ON t.turn_id = c.active_turn_id"
            " WHERE c.conversation_id = ? AND t.turn_id != ? AND t.approval IS NULL",
            (turn.conversation_id, turn.turn_id),
        ).fetchone()
        if busy is not None:
            raise ValueError(f"turn {busy[0]} of this conversation has not ended")
        db.execute(
            "INSERT INTO turns (turn_id, conversation_id, subject) VALUES (?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            (turn.turn_id, turn.conversation_id, turn.subject),
        )
        db.execute(
            "INSERT INTO messages (conversation_id, turn_id, role, content, parts, state,"
            " created_at) VALUES (?, ?, 'user', ?, ?, 'done', ?) ON CONFLICT DO NOTHING",
            (
                *(turn.conversation_id, turn.turn_id, text),
                *(json.dumps([{"type": "text", "text": text}]), self._clock()),
            ),
        )
        db.execute(
            "UPDATE conversations SET active_turn_id = ? WHERE conversation_id = ?",
            (turn.turn_id, turn.conversation_id),
        )

    async def _ask(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return await self._run(lambda db: db.execute(sql, values).fetchall())

    async def _do(self, sql: str, values: tuple[Any, ...]) -> int:
        return await self._run(lambda db: db.execute(sql, values).rowcount)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work in one transaction; a caller who is cancelled does not stop it half-way."""
        db = self._db
        if db is None:
            raise RuntimeError("the store is not open: use `async with`")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _in_transaction, db, work)


def _in_transaction(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    db.execute("BEGIN IMMEDIATE")
    try:
        result = work(db)
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
    return result


def _leave(db: sqlite3.Connection, turn: ActiveTurn, stage: str, stages: tuple[str, ...]) -> None:
    marks = ", ".join("?" for _ in stages)
    db.execute(
        f"UPDATE turns SET stage = ? WHERE turn_id = ? AND stage IN ({marks})",  # noqa: S608
        (stage, turn.turn_id, *stages),
    )
    db.execute(
        "UPDATE conversations SET active_turn_id = NULL"
        " WHERE conversation_id = ? AND active_turn_id = ?",
        (turn.conversation_id, turn.turn_id),
    )


def _conversation(row: tuple[Any, ...]) -> Conversation:
    conversation_id, title, created_at, response_id, turn_id, subject = row
    active = None if turn_id is None else ActiveTurn(conversation_id, turn_id, subject)
    return Conversation(conversation_id, title, created_at, response_id, active)


def _fields(approval: Approval) -> dict[str, Any]:
    return {
        "payload": approval.payload,
        "park_generation": approval.park_generation,
        "interrupt_id": approval.interrupt_id,
    }
