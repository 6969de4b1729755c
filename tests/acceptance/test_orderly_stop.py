"""SIGTERM of any process in step three of four (R12): nothing is repeated, nothing is spent."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support.checkers import check_no_end
from tests.support.promises import LABELS, check_done

if TYPE_CHECKING:
    from tests.acceptance.conftest import StartLive
    from tests.support.live import Live, TurnRef
    from vystak_turns.embedded.stack import Part

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]


async def stop_in_step_three(live: Live, part: Part) -> TurnRef:
    """Ask a part to stop while step three is held, let the step end, start the part again."""
    live.control.hold("three")
    turn = await live.dispatch()
    await live.control.wait_started("three")
    async with asyncio.TaskGroup() as group:
        stopping = group.create_task(live.stack.kill(part, signal.SIGTERM))
        await live.wait_refusing(part)
        live.control.release("three")
    assert stopping.result() == 0
    check_no_end(await live.log(turn))
    await live.start(part)
    return turn


@pytest.mark.parametrize("graph", ["builder", "threads"], ids=["async", "in a thread"])
async def test_an_agent_that_is_stopped_finishes_its_step_and_goes_on_later(
    start_live: StartLive, graph: str
) -> None:
    live = await start_live(f"steps:{graph}")
    turn = await stop_in_step_three(live, "agent")

    await check_done(live, turn)
    assert live.control.started().count("three") == 1


async def test_stopping_the_agent_costs_no_attempt(live: Live) -> None:
    live.control.hold("four")
    turn = await stop_in_step_three(live, "agent")

    await live.control.wait_started("four")
    assert (await live.status(turn)).attempts == 0

    live.control.release("four")
    await check_done(live, turn)


async def test_turn_control_that_is_stopped_lets_go_and_goes_on_later(live: Live) -> None:
    turn = await stop_in_step_three(live, "turns")

    await check_done(live, turn)
    assert max(Counter(live.control.started()).values()) == 1


async def test_stopping_turn_control_costs_no_attempt(live: Live) -> None:
    live.control.hold("four")
    turn = await stop_in_step_three(live, "turns")

    await live.control.wait_started("four")
    assert (await live.status(turn)).attempts == 0

    live.control.release("four")
    await check_done(live, turn)


async def test_a_broker_that_is_stopped_and_started_on_its_data_costs_nothing(live: Live) -> None:
    live.control.hold("three")
    turn = await live.dispatch()
    await live.control.wait_started("three")

    await live.kill("nats", number=signal.SIGTERM)
    await live.start("nats")
    live.control.release("three")

    await check_done(live, turn)
    assert Counter(live.control.started()) == Counter(["input", *LABELS])
