"""Turn control inside the test's own event loop, on real NATS and a real port."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from tests.support.waiting import ticks
from vystak_turns.config import Settings
from vystak_turns.embedded.places import Ports, free_ports
from vystak_turns.wiring import Service
from vystak_turns_rpc import envelope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

AGENT = "shop"
TASKS = f"vystak.default.agents.{AGENT}.tasks"
BASE = "vystak.default"
STREAM = "vystak-default-streams"
# Nobody listens on port 1: the agent is absent.
NO_AGENT = {AGENT: "http://127.0.0.1:1"}


@dataclass(frozen=True, slots=True)
class RunningService:
    """The service and a client of its HTTP port."""

    service: Service
    http: httpx.AsyncClient
    task: asyncio.Task[None]

    async def readiness(self) -> tuple[int, dict[str, dict[str, Any]]]:
        answer = await self.http.get("/readyz")
        return answer.status_code, {part["name"]: part for part in answer.json()["parts"]}

    async def until(self, part: str, state: str) -> dict[str, Any]:
        """Wait until a part is in a state, and return what is said about it."""
        found: dict[str, Any] = {}
        async for _ in ticks(f"{part} is {state}"):
            found = (await self.readiness())[1][part]
            if found["state"] == state:
                break
        return found

    async def until_ready(self) -> None:
        async for _ in ticks("the service is ready"):
            if (await self.readiness())[0] == httpx.codes.OK:
                return

    async def call(self, method: str, params: dict[str, Any], id: Any = 1) -> dict[str, Any]:  # noqa: A002
        answer = await self.http.post("/rpc", content=envelope.request(method, params, id))
        return dict(answer.json())


@asynccontextmanager
async def running_service(
    folder: Path, nats_url: str, **more: Any
) -> AsyncIterator[RunningService]:
    """A service that starts; it is stopped in order at the end."""
    port = free_ports(Ports()).http
    settings = Settings(
        **{
            "agents": NO_AGENT,
            "nats_url": nats_url,
            "turns_path": str(folder / "turns.db"),
            "http_port": port,
            "stop_grace_s": 1,
            **more,
        }
    )
    stop, service = asyncio.Event(), Service(settings)
    task = asyncio.create_task(service.run(stop))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
        try:
            yield RunningService(service, http, task)
        finally:
            stop.set()
            await asyncio.wait_for(task, 30)


async def asked(nc: Client, payload: bytes, subject: str = TASKS) -> bytes:
    """Send bytes as a request over NATS."""
    return (await nc.request(subject, payload, timeout=10)).data


def journaled(file: Path) -> list[str]:
    """Return the turns in a journal."""
    connection = sqlite3.connect(file)
    try:
        return [row[0] for row in connection.execute("SELECT turn_id FROM detached_turns")]
    finally:
        connection.close()
