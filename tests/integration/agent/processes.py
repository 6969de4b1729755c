"""Agents in processes of their own, started by the real command, and gates that reach into them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.integration.agent.harness import WAIT_S, Client, eventually

ROOT = Path(__file__).parents[3]


@dataclass
class GateServer:
    """Counts the steps that begin in any process and lets them pass by name."""

    path: Path
    begun: Counter[str] = field(default_factory=Counter)
    _reached: defaultdict[str, asyncio.Event] = field(
        default_factory=lambda: defaultdict(asyncio.Event)
    )
    _open: defaultdict[str, asyncio.Event] = field(
        default_factory=lambda: defaultdict(asyncio.Event)
    )

    def open(self, *names: str) -> None:
        for name in names:
            self._open[name].set()

    async def reached(self, name: str) -> None:
        """Wait until the step begins (again, after the last call)."""
        async with asyncio.timeout(WAIT_S):
            await self._reached[name].wait()
        self._reached[name].clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = (await reader.readline()).decode().strip()
        self.begun[name] += 1
        self._reached[name].set()
        opened = asyncio.ensure_future(self._open[name].wait())
        gone = asyncio.ensure_future(reader.read())
        await asyncio.wait([opened, gone], return_when=asyncio.FIRST_COMPLETED)
        if opened.done():
            writer.write(b"go\n")
        opened.cancel()
        gone.cancel()
        writer.close()


@contextlib.asynccontextmanager
async def gate_server(directory: Path) -> AsyncIterator[GateServer]:
    gates = GateServer(directory / "gates")
    server = await asyncio.start_unix_server(gates.serve, gates.path)
    try:
        yield gates
    finally:
        server.close()


@dataclass
class Process:
    """One agent process and a client of it."""

    process: asyncio.subprocess.Process
    client: Client

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def exit_code(self) -> int:
        async with asyncio.timeout(WAIT_S):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def agent_process(
    target: str, directory: Path, *, healthy: bool = True, **environment: str
) -> AsyncIterator[Process]:
    """Start `vystak-turns-agent serve`; killed at the end if it still lives."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vystak_turns_agent", "serve"]
    command += [f"tests.integration.agent.served:{target}", "--name", "p", "--port", str(port)]
    settings = {
        "VYSTAK_SESSIONS_PATH": str(directory / "sessions.db"),
        "GATES": str(directory / "gates"),
    }
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=os.environ | settings | environment
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            await _answering(http, process, 200 if healthy else 503)
            yield Process(process, Client(http))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _answering(
    http: httpx.AsyncClient, process: asyncio.subprocess.Process, status: int
) -> None:
    async def ask() -> int:
        assert process.returncode is None, "the agent ended at its start"
        try:
            return (await http.get("/healthz")).status_code
        except httpx.TransportError:
            return 0

    await eventually(ask, lambda found: found == status)
