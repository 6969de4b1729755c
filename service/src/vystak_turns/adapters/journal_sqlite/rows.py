"""Turns as rows of `detached_turns`, and the statements that read and write them."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from vystak_turns.adapters.journal_sqlite.schema import OPEN_STATUSES
from vystak_turns.core.turn import (
    Boundary,
    Claim,
    Decision,
    Failure,
    Intent,
    Json,
    Park,
    Question,
    Turn,
)
from vystak_turns.ports import BoundaryChange
from vystak_turns_rpc.vocabulary import TurnState, WireStatus, wire_status

_READ: Final = (
    "turn_id",
    "agent",
    "stream_subject",
    "thread_id",
    "created_at",
    "updated_at",
    "state",
    "token",
    "attempts",
    "redrives",
    "claimed_checkpoint",
    "claim",
    "free_claim",
    "last_seq",
    "boundary_seq",
    "seq_limit",
    "origin_seq",
    "generation",
    "park_json",
    "intent",
    "failure_code",
    "failure_message",
    "adopted_as",
)
_WRITTEN: Final = (*_READ, "status")
_FIXED: Final = frozenset({"turn_id", "agent", "stream_subject", "created_at", "adopted_as"})

_SELECT: Final = f"SELECT {', '.join(_READ)} FROM detached_turns"  # noqa: S608 - constants
_SELECT_ONE: Final = f"{_SELECT} WHERE turn_id = ?"
_SELECT_OPEN: Final = f"{_SELECT} WHERE {OPEN_STATUSES} ORDER BY created_at, rowid"
_INSERT: Final = (
    f"INSERT INTO detached_turns ({', '.join(_WRITTEN)}, request_json) "  # noqa: S608 - constants
    f"VALUES ({', '.join(f':{name}' for name in _WRITTEN)}, :request_json) "
    "ON CONFLICT (turn_id) DO NOTHING"
)
_UPDATE: Final = (
    "UPDATE detached_turns SET "  # noqa: S608 - constants
    + ", ".join(f"{name} = :{name}" for name in _WRITTEN if name not in _FIXED)
    + " WHERE turn_id = :turn_id"
)


def insert(connection: sqlite3.Connection, turn: Turn, request_json: str) -> bool:
    """Add a turn; false when its id is taken: the first one stays as it is."""
    row = {**_row(turn), "request_json": request_json}
    return connection.execute(_INSERT, row).rowcount > 0


def update(connection: sqlite3.Connection, turn: Turn) -> bool:
    """Overwrite a turn's row; false when there is none."""
    return connection.execute(_UPDATE, _row(turn)).rowcount > 0


def change_boundaries(connection: sqlite3.Connection, turn_id: str, change: BoundaryChange) -> None:
    """Cut, then record. An unknown `keep` cuts all: to show too much again is never wrong."""
    if change.cut:
        _cut(connection, turn_id, change)
    if change.record is not None:
        # REPLACE and not an update: the newest rowid belongs to the newest boundary.
        connection.execute(
            "INSERT OR REPLACE INTO turn_boundaries (turn_id, checkpoint_id, seq) VALUES (?, ?, ?)",
            (turn_id, change.record.checkpoint_id, change.record.seq),
        )


def select(connection: sqlite3.Connection, turn_id: str) -> Turn | None:
    """Return one turn."""
    row = connection.execute(_SELECT_ONE, (turn_id,)).fetchone()
    return None if row is None else _turn(row)


def select_open(connection: sqlite3.Connection) -> list[Turn]:
    """Return all turns that have not ended, in order of creation."""
    return [_turn(row) for row in connection.execute(_SELECT_OPEN)]


def select_request(connection: sqlite3.Connection, turn_id: str) -> Json:
    """Return the stored request; `None` for an unknown turn."""
    row = connection.execute(
        "SELECT request_json FROM detached_turns WHERE turn_id = ?", (turn_id,)
    ).fetchone()
    return None if row is None else json.loads(row[0])


def select_boundaries(connection: sqlite3.Connection, turn_id: str) -> tuple[Boundary, ...]:
    """Return the boundaries, oldest first; those of one seq in the order of their recording."""
    rows = connection.execute(
        "SELECT checkpoint_id, seq FROM turn_boundaries WHERE turn_id = ? ORDER BY seq, rowid",
        (turn_id,),
    )
    return tuple(Boundary(*row) for row in rows)


def dump(value: Json) -> str:
    """Write JSON in ASCII: a lone surrogate in it must not stop a row from being stored."""
    return json.dumps(value, separators=(",", ":"))


def _cut(connection: sqlite3.Connection, turn_id: str, change: BoundaryChange) -> None:
    kept = connection.execute(
        "SELECT seq, rowid FROM turn_boundaries WHERE turn_id = ? AND checkpoint_id = ?",
        (turn_id, change.keep),
    ).fetchone()
    if kept is None and change.record is not None and change.record.checkpoint_id == change.keep:
        kept = (change.record.seq, -1)
    seq, rowid = kept or (-2, -1)
    connection.execute(
        "DELETE FROM turn_boundaries WHERE turn_id = ? AND (seq, rowid) > (?, ?)",
        (turn_id, seq, rowid),
    )


def _row(turn: Turn) -> dict[str, Any]:
    failure = turn.failure
    return {
        "turn_id": turn.turn_id,
        "agent": turn.agent,
        "stream_subject": turn.stream_subject,
        "thread_id": turn.thread_id,
        "created_at": turn.created_at_s,
        "updated_at": turn.updated_at_s,
        "status": wire_status(turn.state).value,
        "state": turn.state.value,
        "token": turn.token,
        "attempts": turn.attempts,
        "redrives": turn.redrives,
        "claimed_checkpoint": turn.claimed_checkpoint,
        "claim": turn.claim.value,
        "free_claim": int(turn.free_claim),
        "last_seq": turn.last_seq,
        "boundary_seq": turn.boundary_seq,
        "seq_limit": turn.seq_limit,
        "origin_seq": turn.origin_seq,
        "generation": turn.generation,
        "park_json": None if turn.park is None else dump(_park_json(turn.park)),
        "intent": None if turn.intent is None else turn.intent.value,
        "failure_code": None if failure is None else _storable(str(failure.code)),
        "failure_message": None if failure is None else _storable(failure.message),
        "adopted_as": None if turn.adopted_as is None else turn.adopted_as.value,
    }


def _turn(row: tuple[Any, ...]) -> Turn:
    fields: Mapping[str, Any] = dict(zip(_READ, row, strict=True))
    updated_at_s = _seconds(fields["updated_at"])
    return Turn(
        turn_id=fields["turn_id"],
        agent=fields["agent"],
        stream_subject=fields["stream_subject"],
        thread_id=fields["thread_id"],
        created_at_s=fields["created_at"] or updated_at_s,
        updated_at_s=updated_at_s,
        state=TurnState(fields["state"]),
        token=fields["token"],
        attempts=fields["attempts"],
        redrives=fields["redrives"],
        claimed_checkpoint=fields["claimed_checkpoint"],
        claim=Claim(fields["claim"]),
        free_claim=bool(fields["free_claim"]),
        last_seq=fields["last_seq"],
        boundary_seq=fields["boundary_seq"],
        seq_limit=fields["seq_limit"],
        origin_seq=fields["origin_seq"],
        generation=fields["generation"],
        park=None if fields["park_json"] is None else _park(json.loads(fields["park_json"])),
        intent=None if fields["intent"] is None else Intent(fields["intent"]),
        failure=_failure(fields["failure_code"], fields["failure_message"]),
        adopted_as=None if fields["adopted_as"] is None else WireStatus(fields["adopted_as"]),
    )


def _park_json(park: Park) -> Json:
    return {
        "checkpoint_id": park.checkpoint_id,
        "generation": park.generation,
        "asked": park.asked,
        "questions": [[q.interrupt_id, q.payload] for q in park.questions],
        "decisions": [[d.interrupt_id, d.value] for d in park.decisions],
    }


def _park(stored: Mapping[str, Any]) -> Park:
    return Park(
        checkpoint_id=stored["checkpoint_id"],
        generation=stored["generation"],
        asked=stored["asked"],
        questions=tuple(Question(*pair) for pair in stored["questions"]),
        decisions=tuple(Decision(*pair) for pair in stored["decisions"]),
    )


def _failure(code: str | None, message: str | None) -> Failure | None:
    return None if code is None else Failure(code, message or "")


def _storable(text: str) -> str:
    """Replace what UTF-8 cannot hold; the words come from an agent."""
    return text.encode("utf-8", "replace").decode()


def _seconds(stored: Any) -> float:
    """Read a time that may have been written as a number or as ISO 8601 text."""
    with contextlib.suppress(TypeError, ValueError):
        return float(stored)
    with contextlib.suppress(TypeError, ValueError):
        return datetime.fromisoformat(stored).timestamp()
    return 0.0
