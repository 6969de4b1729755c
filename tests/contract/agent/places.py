"""Where the suite's agents run: the real package over HTTP, a process of its own, and the fake."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.contract.agent.graphs import GRAPHS, SCRIPTS
from tests.integration.agent.graphs import Gates
from tests.integration.agent.harness import running_agent
from tests.integration.agent.processes import GateServer, Process, agent_process, gate_server
from tests.simulation.blows import Blows
from tests.simulation.fake_agent import FakeAgent
from vystak_turns.adapters.agent_http.agent import HttpAgent
from vystak_turns.ports import Agent


class Steps(Protocol):
    """The gates of the graph's steps."""

    def open(self, *names: str) -> None:
        """Let these steps pass."""
        ...

    async def reached(self, name: str) -> None:
        """Wait until the step has begun."""
        ...

    @property
    def counts(self) -> dict[str, int]:
        """How often each step began."""
        ...


@dataclass
class Place:
    """An agent that serves one graph."""

    agent: Agent
    steps: Steps
    _die: Callable[[], contextlib.AbstractAsyncContextManager[Agent]] | None = None
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def die_and_come_back(self) -> None:
        """Kill the process and start another on what the first had kept."""
        assert self._die is not None
        self.agent = await self._stack.enter_async_context(self._die())


class _Counted:
    def __init__(self, gates: Gates | GateServer) -> None:
        self._gates = gates
        self.open = gates.open
        self.reached = gates.reached

    @property
    def counts(self) -> dict[str, int]:
        return dict(self._gates.begun)


@contextlib.asynccontextmanager
async def real_place(name: str, folder: Path) -> AsyncIterator[Place]:
    """The agent package in this process: real LangGraph, real SQLite, real HTTP."""
    gates = Gates()
    async with running_agent(GRAPHS[name](gates), folder / "sessions.db") as served:
        agent = HttpAgent(str(served.http.base_url))
        try:
            yield Place(agent, _Counted(gates))
        finally:
            await agent.close()


@contextlib.asynccontextmanager
async def process_place(name: str, folder: Path) -> AsyncIterator[Place]:
    """The agent package in a process that can be killed."""
    async with gate_server(folder) as gates, contextlib.AsyncExitStack() as stack:
        processes: list[Process] = []

        @contextlib.asynccontextmanager
        async def begin() -> AsyncIterator[Agent]:
            for process in processes:
                await process.kill()
            async with agent_process(name, folder) as process:
                processes.append(process)
                agent = HttpAgent(str(process.client.http.base_url))
                try:
                    yield agent
                finally:
                    await agent.close()

        first = await stack.enter_async_context(begin())
        yield Place(first, _Counted(gates), begin, stack)


@contextlib.asynccontextmanager
async def fake_place(name: str, folder: Path) -> AsyncIterator[Place]:
    """The simulation's agent, in real time; it keeps what it keeps in memory."""
    del folder
    gates = Gates()
    blows = Blows((), lambda _blow: None)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(blows.task_factory)
    agent = FakeAgent(blows, script_of=lambda _text: SCRIPTS[name], pass_gate=gates.step)
    agent.start()

    @contextlib.asynccontextmanager
    async def begin_again() -> AsyncIterator[Agent]:
        agent.die()
        agent.start()
        yield agent

    async with contextlib.AsyncExitStack() as stack:
        try:
            yield Place(agent, _Counted(gates), begin_again, stack)
        finally:
            agent.die()
            loop.set_task_factory(None)
