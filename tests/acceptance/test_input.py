"""Killed between the acknowledgement and the first checkpoint: the input is applied once (R5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.promises import LABELS, check_done
from tests.support.waiting import until
from vystak_turns_rpc.errors import ErrorCode, RpcError

if TYPE_CHECKING:
    from tests.support.live import Live, TurnRef

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

FIRST, LATER = "This is my first message.", "This is my later message."


async def inputs(live: Live, turn: TurnRef) -> list[str]:
    return [str(message.text) for message in await live.thread(turn) if message.type == "human"]


async def finish_a_first_turn(live: Live) -> str:
    turn = await live.dispatch(text=FIRST)
    await check_done(live, turn)
    thread_id = (await live.status(turn)).thread_id
    assert thread_id is not None
    live.control.forget()
    return thread_id


@pytest.mark.parametrize("turns_dies_too", [False, True], ids=["agent", "agent+turns"])
async def test_a_first_turn_is_applied_once_though_its_agent_dies_over_the_input(
    live: Live, *, turns_dies_too: bool
) -> None:
    live.control.let_die("input", 1)
    turn = await live.dispatch(text=FIRST)
    await until(lambda: live.stack.pid("agent") is None, "the agent died over the input")

    if turns_dies_too:
        await live.kill("turns")
        await live.start("turns", "agent")
    else:
        await live.start("agent")

    await check_done(live, turn)
    assert await inputs(live, turn) == [FIRST]
    assert live.control.started() == ["input", "input", *LABELS]


@pytest.mark.parametrize("turns_dies_too", [False, True], ids=["agent", "agent+turns"])
async def test_a_later_turn_is_applied_once_though_its_agent_dies_over_the_input(
    live: Live, *, turns_dies_too: bool
) -> None:
    thread_id = await finish_a_first_turn(live)
    live.control.let_die("input", 1)
    turn = await live.dispatch(thread_id, LATER)
    await until(lambda: live.stack.pid("agent") is None, "the agent died over the input")

    if turns_dies_too:
        await live.kill("turns")
        await live.start("turns", "agent")
    else:
        await live.start("agent")

    await check_done(live, turn)
    assert await inputs(live, turn) == [FIRST, LATER]
    assert live.control.started() == ["input", "input", *LABELS]


async def test_what_was_acknowledged_without_an_agent_is_done_after_the_death_of_turn_control(
    live: Live,
) -> None:
    thread_id = await finish_a_first_turn(live)
    await live.kill("agent")
    turn = await live.dispatch(thread_id, LATER)
    await live.kill("turns")

    await live.start("turns", "agent")

    await check_done(live, turn)
    assert await inputs(live, turn) == [FIRST, LATER]
    assert live.control.started() == ["input", *LABELS]


async def test_a_repeated_dispatch_is_acknowledged_and_not_run_again(live: Live) -> None:
    live.control.hold("one")
    turn = await live.dispatch(text=FIRST)
    await live.control.wait_started("one")

    await live.ask(turn)
    live.control.release("one")

    await check_done(live, turn)
    assert await inputs(live, turn) == [FIRST]


async def test_a_second_turn_on_a_running_thread_is_refused_by_name(live: Live) -> None:
    live.control.hold("one")
    turn = await live.dispatch(text=FIRST)
    await live.control.wait_started("one")
    thread_id = (await live.status(turn)).thread_id

    with pytest.raises(RpcError, match=turn.turn_id) as refused:
        await live.dispatch(thread_id, LATER)

    assert refused.value.code == ErrorCode.THREAD_BUSY
    live.control.release("one")
    await check_done(live, turn)
    assert await inputs(live, turn) == [FIRST]
