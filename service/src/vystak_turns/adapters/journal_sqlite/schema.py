"""The tables of the journal, and how a file of an earlier version is brought up to date.

Names and meaning of `detached_turns` (up to `updated_at`) and of `turn_boundaries` are part of the
wire: they are read from outside. Every other column has a default, so that a journal that was made
before this service can be taken over in place.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from typing import Any, Final

SCHEMA_VERSION: Final = 1

# Statuses of turns that have not ended; the text must be the same in index and query.
OPEN_STATUSES: Final = "status IN ('running', 'parked')"

_TABLES: Final = (
    """
    CREATE TABLE IF NOT EXISTS detached_turns (
        turn_id TEXT PRIMARY KEY,
        stream_subject TEXT NOT NULL,
        thread_id TEXT,
        request_json TEXT NOT NULL,
        status TEXT NOT NULL,
        last_seq INTEGER NOT NULL DEFAULT -1,
        boundary_seq INTEGER NOT NULL DEFAULT -1,
        attempts INTEGER NOT NULL DEFAULT 0,
        updated_at REAL NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS turn_boundaries (
        turn_id TEXT NOT NULL,
        checkpoint_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (turn_id, checkpoint_id)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS journal_meta (
        name TEXT PRIMARY KEY,
        value INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
)

_ADDED_COLUMNS: Final = {
    "agent": "TEXT NOT NULL DEFAULT ''",
    "state": "TEXT NOT NULL DEFAULT ''",
    "created_at": "REAL NOT NULL DEFAULT 0",
    "token": "INTEGER NOT NULL DEFAULT 0",
    "redrives": "INTEGER NOT NULL DEFAULT 0",
    "claimed_checkpoint": "TEXT",
    "claim": "TEXT NOT NULL DEFAULT 'none'",
    "free_claim": "INTEGER NOT NULL DEFAULT 0",
    "seq_limit": "INTEGER NOT NULL DEFAULT 0",
    "origin_seq": "INTEGER NOT NULL DEFAULT 0",
    "generation": "INTEGER NOT NULL DEFAULT 0",
    "park_json": "TEXT",
    "intent": "TEXT",
    "failure_code": "TEXT",
    "failure_message": "TEXT",
    "adopted_as": "TEXT",
}

# Partial: the start-up scan stays fast however many turns have ended.
_OPEN_INDEX: Final = (
    "CREATE INDEX IF NOT EXISTS detached_turns_open ON detached_turns (agent, thread_id) "
    f"WHERE {OPEN_STATUSES}"
)

# A status of a foreign row becomes the state from which recovery finds out the rest: a parked
# thread is asked for its questions again, since the row does not hold them.
_STATE_OF_STATUS: Final = (
    "CASE status WHEN 'done' THEN 'completed' WHEN 'failed' THEN 'failed' ELSE 'probing' END"
)


# The original lets a thread have several unfinished turns; its panel waits for the last one.
# Rows are in order of creation. At least one of the two must be foreign: R13 keeps ours apart.
_SUPERSEDE_EARLIER: Final = f"""
    UPDATE detached_turns SET intent = 'superseded'
    WHERE {OPEN_STATUSES} AND intent IS NULL AND EXISTS (
        SELECT 1 FROM detached_turns AS later
        WHERE later.{OPEN_STATUSES} AND later.agent = detached_turns.agent
            AND later.thread_id = detached_turns.thread_id
            AND later.rowid > detached_turns.rowid
            AND (later.state = '' OR detached_turns.state = '')
    )
"""  # noqa: S608 - constants


class NewerSchemaError(Exception):
    """The file was written by a newer version of this service."""


def connect(path: str, *, create: bool) -> sqlite3.Connection:
    """Open the file in the mode that makes every acknowledged commit durable."""
    mode = "rwc" if create else "rw"
    connection = sqlite3.connect(
        f"file:{_escaped(path)}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=2.0,
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the block as one, or undo all of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def take_over(connection: sqlite3.Connection, token: int, agent: str) -> int:
    """Bring the file up to date and become its owner; returns the new owner epoch.

    `token` is the least value that the token counter may have; `agent` gets the rows that name
    none.
    """
    with transaction(connection):
        for statement in _TABLES:
            connection.execute(statement)
        version = read_meta(connection, "schema_version")
        if version > SCHEMA_VERSION:
            raise NewerSchemaError(
                f"the journal has schema {version}, this version knows {SCHEMA_VERSION}: "
                "start the newer version of the service"
            )
        _add_missing_columns(connection)
        _adopt_foreign_rows(connection, agent)
        connection.execute(_OPEN_INDEX)
        epoch = read_meta(connection, "owner_epoch") + 1
        write_meta(connection, "owner_epoch", epoch)
        write_meta(connection, "schema_version", SCHEMA_VERSION)
        write_meta(connection, "token", max(token, read_meta(connection, "token")))
    return epoch


def read_meta(connection: sqlite3.Connection, name: str) -> int:
    """Return a number of the journal itself; 0 when it is not there yet."""
    row = connection.execute("SELECT value FROM journal_meta WHERE name = ?", (name,)).fetchone()
    return 0 if row is None else int(row[0])


def write_meta(connection: sqlite3.Connection, name: str, value: int) -> None:
    """Store a number of the journal itself."""
    connection.execute(
        "INSERT INTO journal_meta (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def _escaped(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _add_missing_columns(connection: sqlite3.Connection) -> None:
    present = {row[1] for row in connection.execute("PRAGMA table_info(detached_turns)")}
    for name, kind in _ADDED_COLUMNS.items():
        if name not in present:
            connection.execute(f"ALTER TABLE detached_turns ADD COLUMN {name} {kind}")


def _adopt_foreign_rows(connection: sqlite3.Connection, agent: str) -> None:
    """Give rows without a state the state, thread and reserved seqs that recovery needs.

    `last_seq` of such a row may lag one message behind the log, hence the wider reservation. Of
    several unfinished turns on a thread all but the last are superseded (R13).
    """
    threadless = connection.execute(
        "SELECT turn_id, request_json FROM detached_turns WHERE state = '' AND thread_id IS NULL"
    ).fetchall()
    for turn_id, request_json in threadless:
        connection.execute(
            "UPDATE detached_turns SET thread_id = ? WHERE turn_id = ?",
            (_thread_of(turn_id, request_json), turn_id),
        )
    connection.execute(
        "UPDATE detached_turns SET agent = ? WHERE state = '' AND agent = ''", (agent,)
    )
    connection.execute(_SUPERSEDE_EARLIER)
    connection.execute(
        f"UPDATE detached_turns SET state = {_STATE_OF_STATUS}, "  # noqa: S608 - a constant
        "status = CASE status WHEN 'parked' THEN 'running' ELSE status END, "
        "adopted_as = status, seq_limit = last_seq + 2 WHERE state = ''"
    )


def _thread_of(turn_id: str, request_json: str) -> str:
    """Return the thread of the conversation, or a new one that depends on the turn alone."""
    request: Any = None
    with contextlib.suppress(ValueError):
        request = json.loads(request_json)
    previous = request.get("previous_response_id") if isinstance(request, dict) else None
    if isinstance(previous, str) and previous:
        return previous
    return "resp_" + hashlib.sha256(turn_id.encode()).hexdigest()[:24]
