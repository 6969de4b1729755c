"""A caller over plain NATS of a service in the test's own event loop, and what its turns left."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from tests.support.checkers import Logged, logged
from tests.support.running_service import BASE, STREAM, TASKS, asked
from tests.support.waiting import PATIENCE_S, ticks
from vystak_turns_rpc import envelope

# Tries follow each other as fast as a test wants them to.
QUICK: dict[str, Any] = {"retry_first_s": 0.01, "retry_max_s": 0.05, "health_poll_max_s": 0.02}


@dataclass(frozen=True, slots=True)
class Caller:
    """Asks for turns; `tasks` is the subject of their agent."""

    nc: Client
    tasks: str = TASKS

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the reply, be it a result or an error."""
        reply = await asked(self.nc, envelope.request(method, params, 1), self.tasks)
        answer: dict[str, Any] = json.loads(reply)
        return answer

    async def create(self, turn_id: str, **request: Any) -> dict[str, Any]:
        """Dispatch a turn and return the acknowledgement."""
        answer = await self.call(
            "responses/createDetached",
            turn_id=turn_id,
            stream_subject=subject_of(turn_id),
            request={"input": "Go.", **request},
        )
        result: dict[str, Any] = answer["result"]
        return result

    async def status(self, turn_id: str) -> dict[str, Any]:
        """Return what turnStatus says."""
        result: dict[str, Any] = (await self.call("responses/turnStatus", turn_id=turn_id))[
            "result"
        ]
        return result

    async def until(self, turn_id: str, wanted: str) -> dict[str, Any]:
        """Wait for a status; one that is final and another one fails at once."""
        status: dict[str, Any] = {}
        async for _ in ticks(f"{turn_id} is {wanted}", PATIENCE_S):
            status = await self.status(turn_id)
            if status["status"] == wanted:
                break
            assert status["status"] in {"running", "parked"}, status
        return status

    async def log(self, turn_id: str) -> list[Logged]:
        """Return all that the turn's subject holds."""
        js, stream_seq = self.nc.jetstream(), 1
        bodies: list[bytes] = []
        while True:
            try:
                message = await js.get_msg(
                    STREAM, seq=stream_seq, subject=subject_of(turn_id), next=True
                )
            except NotFoundError:
                return logged(bodies)
            bodies.append(message.data or b"")
            stream_seq = (message.seq or 0) + 1


def subject_of(turn_id: str) -> str:
    """A turn's subject."""
    return f"{BASE}.streams.c1.{turn_id}"


def types(log: list[Logged]) -> list[str]:
    """The types of a log's events, without their first word."""
    return [message.type.partition(".")[2] for message in log]


def boundaries_in(file: Path) -> list[tuple[str, int]]:
    """Return checkpoint and seq of every boundary in a journal, in order of seq."""
    with closing(sqlite3.connect(file)) as connection:
        query = "SELECT checkpoint_id, seq FROM turn_boundaries ORDER BY seq"
        return [(str(one), int(seq)) for one, seq in connection.execute(query)]


async def connected(url: str) -> Client:
    """A plain client of the broker."""
    return await nats.connect(url)
