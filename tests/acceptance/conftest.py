"""One stack per graph for the whole folder: starting three processes takes most of a test's time.

Each test has threads and turns of its own. What a test has killed is started again after it; a
test that failed takes its stack with it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Protocol

import pytest
import pytest_asyncio

from tests.support.live import Live, live_stack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator
    from pathlib import Path

FAILED = pytest.StashKey[bool]()


class StartLive(Protocol):
    async def __call__(self, graph: str = "steps:builder") -> Live: ...


class Stacks:
    """The running stacks by graph."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._running: dict[str, tuple[Live, AsyncExitStack]] = {}

    async def get(self, graph: str) -> Live:
        if graph not in self._running:
            self._count += 1
            exits = AsyncExitStack()
            folder = self._folder / str(self._count)
            live = await exits.enter_async_context(live_stack(folder, graph))
            self._running[graph] = (live, exits)
        return self._running[graph][0]

    async def drop(self, graph: str) -> None:
        _, exits = self._running.pop(graph)
        await exits.aclose()

    async def drop_all(self) -> None:
        for graph in list(self._running):
            await self.drop(graph)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stacks(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stacks]:
    running = Stacks(tmp_path_factory.mktemp("stacks"))
    yield running
    await running.drop_all()


@pytest_asyncio.fixture(loop_scope="session")
async def start_live(stacks: Stacks, request: pytest.FixtureRequest) -> AsyncIterator[StartLive]:
    """Take the stack whose agent serves the graph."""
    used: list[str] = []

    async def start(graph: str = "steps:builder") -> Live:
        used.append(graph)
        return await stacks.get(graph)

    yield start
    for graph in used:
        live = await stacks.get(graph)
        if request.node.stash.get(FAILED, True):
            live.show_logs()
            await stacks.drop(graph)
        else:
            await live.mend()


@pytest_asyncio.fixture(loop_scope="session")
async def live(start_live: StartLive) -> Live:
    """A stack whose agent does four steps, one after the other."""
    return await start_live()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report
