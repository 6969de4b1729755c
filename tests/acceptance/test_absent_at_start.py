"""Turn control starts without broker and agent, says so, and works once they come (R9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.promises import check_done
from tests.support.waiting import ticks

if TYPE_CHECKING:
    from tests.support.live import Live

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]


async def what_is_missing(live: Live) -> str:
    """Return the words with which turn control says that it is not ready."""
    async for _ in ticks("turn control answers"):
        code, words = await live.readiness()
        if code:
            assert code == 503
            return str(words)
    raise AssertionError


async def test_turn_control_starts_without_a_broker_and_says_so(live: Live) -> None:
    await live.kill("turns", "nats")
    await live.stack.start_part("turns")

    assert "broker" in await what_is_missing(live)

    await live.start("nats")
    await check_done(live, await live.dispatch())


async def test_a_turn_waits_for_an_agent_that_is_absent_and_says_so(live: Live) -> None:
    await live.kill("turns", "agent")
    await live.stack.start_part("turns")
    turn = await live.dispatch()

    async for _ in ticks("the turn waits for the agent"):
        if (await live.status(turn)).waiting_for == "agent":
            break

    await live.start("agent")
    await check_done(live, turn)
