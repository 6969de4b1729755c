"""One owner of the journal file, among real processes: the second waits until the first is gone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.running_service import asked, journaled
from tests.support.waiting import ticks
from vystak_turns.adapters.file_lock import POLL_S
from vystak_turns.embedded.places import Ports, free_ports
from vystak_turns_rpc import envelope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.broker, pytest.mark.processes]

PATIENCE_S = 60
STATUS = envelope.request("responses/turnStatus", {"turn_id": "t1"}, 1)
CREATE = envelope.request(
    "responses/createDetached",
    {
        "request": {"input": "Go."},
        "turn_id": "t1",
        "stream_subject": "vystak.default.streams.c1.t1",
    },
    1,
)


@dataclass(frozen=True, slots=True)
class Process:
    """A process of turn control and its HTTP port."""

    process: asyncio.subprocess.Process
    http: httpx.AsyncClient

    async def journal(self) -> dict[str, Any]:
        """Return what /readyz says of the journal; nothing while the port is shut."""
        try:
            answer = await self.http.get("/readyz")
        except httpx.TransportError:
            return {"state": None}
        return next(part for part in answer.json()["parts"] if part["name"] == "journal")

    async def until_journal(self, state: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        async for _ in ticks(f"the journal is {state}", PATIENCE_S):
            found = await self.journal()
            if found["state"] == state:
                break
        return found

    async def until_ready(self) -> None:
        async for _ in ticks("it is ready", PATIENCE_S):
            if (await self.http.get("/readyz")).status_code == httpx.codes.OK:
                return


@asynccontextmanager
async def serving(folder: Path, nats_url: str, port: int) -> AsyncIterator[Process]:
    own = {k: v for k, v in os.environ.items() if not k.startswith("VYSTAK_")}
    settings = {
        "VYSTAK_AGENTS": '{"shop": "http://127.0.0.1:1"}',
        "VYSTAK_NATS_URL": nats_url,
        "VYSTAK_TURNS_PATH": str(folder / "turns.db"),
        "VYSTAK_HTTP_PORT": str(port),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "vystak_turns",
        "serve",
        env={**own, **settings},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    base_url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=base_url, trust_env=False) as http:
        try:
            yield Process(process, http)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_the_second_process_says_that_it_waits_and_takes_over_after_a_kill(
    tmp_path: Path, nats_server: NatsServer, nc: Client
) -> None:
    ports = free_ports(Ports())
    async with serving(tmp_path, nats_server.url, ports.http) as first:
        await first.until_journal("open")
        await first.until_ready()
        async with serving(tmp_path, nats_server.url, ports.agent) as second:
            said = await second.until_journal("waiting")
            assert "another process owns the journal" in said["words"]
            assert (await second.http.get("/readyz")).status_code == 503
            assert (await second.http.post("/rpc", content=STATUS)).status_code == 503
            await asked(nc, CREATE)

            first.process.send_signal(signal.SIGKILL)
            await first.process.wait()

            await second.until_journal("open")
            await second.until_ready()
            status = json.loads(await asked(nc, STATUS))["result"]
            assert status["status"] == "running"
            assert journaled(tmp_path / "turns.db") == ["t1"]


async def test_an_owner_that_is_only_stopped_keeps_the_journal(
    tmp_path: Path, nats_server: NatsServer, nc: Client
) -> None:
    """It will go on and write: nobody may have taken its place meanwhile."""
    ports = free_ports(Ports())
    async with serving(tmp_path, nats_server.url, ports.http) as owner:
        await owner.until_journal("open")
        async with serving(tmp_path, nats_server.url, ports.agent) as waiting:
            await waiting.until_journal("waiting")
            owner.process.send_signal(signal.SIGSTOP)
            loop = asyncio.get_running_loop()
            many_tries_later_s = loop.time() + 10 * POLL_S
            while loop.time() < many_tries_later_s:
                assert (await waiting.journal())["state"] == "waiting"
            owner.process.send_signal(signal.SIGCONT)

            await owner.until_ready()
            assert b'"unknown"' in await asked(nc, STATUS)
            assert (await waiting.journal())["state"] == "waiting"
