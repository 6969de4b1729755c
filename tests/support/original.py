"""What the original's in-agent bridge leaves behind: its journal, and its messages in the log.

Written from the description of its wire, apart from everything of ours: nine columns, no stamps on
the thread, no headers on messages, an approval event without generation.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from nats.js import JetStreamContext

TABLES = """
    CREATE TABLE detached_turns (
        turn_id TEXT PRIMARY KEY,
        stream_subject TEXT NOT NULL,
        thread_id TEXT,
        request_json TEXT NOT NULL,
        status TEXT NOT NULL,
        last_seq INTEGER NOT NULL DEFAULT -1,
        boundary_seq INTEGER NOT NULL DEFAULT -1,
        attempts INTEGER NOT NULL DEFAULT 0,
        updated_at TEXT NOT NULL
    );
    CREATE TABLE turn_boundaries (
        turn_id TEXT NOT NULL,
        checkpoint_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (turn_id, checkpoint_id)
    );
"""


@dataclass(slots=True)
class OriginalTurn:
    """A turn as the original's bridge carries it out, and its row."""

    turn_id: str
    subject: str
    request: Mapping[str, Any]
    thread_id: str | None = None
    status: str = "running"
    told: list[Mapping[str, Any]] = field(default_factory=list)
    boundaries: dict[str, int] = field(default_factory=dict)

    async def run(self, agent_url: str, over: asyncio.Event, told: Callable[[], None]) -> None:
        """Read the agent's stream until it ends or breaks; `over` is set then."""
        url = f"{agent_url}/v1/responses"
        with suppress(httpx.TransportError):
            async with (
                httpx.AsyncClient(trust_env=False, timeout=60) as http,
                http.stream("POST", url, json=dict(self.request)) as answer,
            ):
                async for line in answer.aiter_lines():
                    self._take(line)
                    told()
        over.set()

    def _take(self, line: str) -> None:
        if not line.startswith("data: {"):
            return
        event = json.loads(line.removeprefix("data: "))
        if event["type"] == "vystak.checkpoint":
            if self.told:
                self.boundaries[event["checkpoint_id"]] = len(self.told) - 1
            return
        if event["type"] == "response.created":
            self.thread_id = event["response"]["id"]
        self.told.append(event)

    def park(self, payload: Any) -> None:
        """Publish the question, as the bridge does when the agent says that it waits."""
        self.told.append({"type": "vystak.approval.requested", "payload": payload})
        self.status = "parked"

    async def publish(self, broker: JetStreamContext) -> None:
        """Put what was told into the turn's log."""
        for seq, event in enumerate(self.told):
            await broker.publish(self.subject, json.dumps({"seq": seq, "event": event}).encode())


def write_journal(path: Path, turns: list[OriginalTurn]) -> None:
    """Make the original's file, with these turns in order of their creation."""
    for file in path.parent.glob(f"{path.name}*"):
        if file.suffix != ".lock":
            file.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(TABLES)
        for turn in turns:
            _insert(connection, turn)


def forget_stamps(sessions_db: Path) -> None:
    """Make the threads what the original's agent would have left: no stamps on any checkpoint."""
    with closing(sqlite3.connect(sessions_db)) as connection, connection:
        changed = connection.execute(
            "UPDATE checkpoints SET metadata = "
            "CAST(json_remove(CAST(metadata AS TEXT), '$.turn_id', '$.epoch') AS BLOB)"
        )
        assert changed.rowcount > 0, "the agent has left no checkpoint"


def _insert(connection: sqlite3.Connection, turn: OriginalTurn) -> None:
    newest = max(turn.boundaries.values(), default=-1)
    row = (turn.turn_id, turn.subject, turn.thread_id, json.dumps(turn.request), turn.status)
    numbers = (len(turn.told) - 1, newest, 0, "2026-11-01T10:00:00+00:00")
    connection.execute("INSERT INTO detached_turns VALUES (?,?,?,?,?,?,?,?,?)", (*row, *numbers))
    connection.executemany(
        "INSERT INTO turn_boundaries VALUES (?, ?, ?)",
        [(turn.turn_id, checkpoint, seq) for checkpoint, seq in turn.boundaries.items()],
    )
