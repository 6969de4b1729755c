from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from vystak_turns.adapters.agent_http.agent import AgentTimes, HttpAgent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# Short for tests that wait for them to pass; the heartbeat limit is three times its own.
TIMES = AgentTimes(
    connect_s=2.0,
    answer_s=0.5,
    call_s=0.5,
    health_s=0.5,
    heartbeat_s=0.1,
    gap_s=1.0,
    event_max_bytes=10_000,
)


@pytest.fixture
async def agent_at() -> AsyncIterator[Callable[..., HttpAgent]]:
    """Gives agents at addresses, and closes them at the end."""
    async with contextlib.AsyncExitStack() as stack:

        def make(url: str, times: AgentTimes = TIMES) -> HttpAgent:
            agent = HttpAgent(url, times)
            stack.push_async_callback(agent.close)
            return agent

        yield make
