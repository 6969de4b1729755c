from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.support.live import Live, live_stack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from vystak_turns.embedded.stack import Part


class StartLive(Protocol):
    async def __call__(
        self, graph: str = "steps:builder", restart: Sequence[Part] = ()
    ) -> Live: ...


@pytest.fixture
async def start_live(tmp_path: Path) -> AsyncIterator[StartLive]:
    """Start a stack with the graph that the test wants; all of it is stopped at the end."""
    async with AsyncExitStack() as stack:

        async def start(graph: str = "steps:builder", restart: Sequence[Part] = ()) -> Live:
            return await stack.enter_async_context(live_stack(tmp_path, graph, restart))

        yield start


@pytest.fixture
async def live(start_live: StartLive) -> Live:
    """A stack whose agent does four steps, one after the other."""
    return await start_live()
