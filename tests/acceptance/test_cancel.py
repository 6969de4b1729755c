"""A cancelled turn ends once, with the code `cancelled`, whatever state it was in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import checkers
from tests.support.promises import check_done
from vystak_turns_rpc.errors import ErrorCode, RpcError
from vystak_turns_rpc.vocabulary import FailureCode, WireStatus

if TYPE_CHECKING:
    from tests.acceptance.conftest import StartLive
    from tests.support.live import Live, TurnRef

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]


async def check_cancelled(live: Live, turn: TurnRef) -> None:
    """One terminal event, last in the log, and a status that says why."""
    await live.wait_end(turn)
    status = await live.wait_status(turn, WireStatus.FAILED)
    log = await live.log(turn)
    checkers.check_one_end(log, "response.failed")
    checkers.check_sequence(log)
    assert status.error is not None
    assert status.error.code == FailureCode.CANCELLED
    assert log[-1].event["response"]["error"]["code"] == FailureCode.CANCELLED


async def test_a_running_turn_finishes_its_step_and_ends(live: Live) -> None:
    live.control.hold("two")
    turn = await live.dispatch()
    await live.control.wait_started("two")

    answer = await live.client.cancel_detached(turn.turn_id)
    live.control.release("two")

    assert answer.status is WireStatus.RUNNING, "the thread is reserved until the agent confirms"
    await check_cancelled(live, turn)
    checkers.check_steps_once(live.control.completed(), ["one", "two"])


async def test_the_thread_is_reserved_until_the_run_has_stopped_and_free_afterwards(
    live: Live,
) -> None:
    live.control.hold("two")
    turn = await live.dispatch()
    await live.control.wait_started("two")
    thread_id = (await live.status(turn)).thread_id
    await live.client.cancel_detached(turn.turn_id)

    with pytest.raises(RpcError) as refused:
        await live.dispatch(thread_id)
    live.control.release("two")
    await check_cancelled(live, turn)
    live.control.forget()
    later = await live.dispatch(thread_id)

    assert refused.value.code is ErrorCode.THREAD_BUSY
    await check_done(live, later)


async def test_a_cancel_while_the_agent_is_down_is_kept_and_carried_out_when_it_is_back(
    live: Live,
) -> None:
    live.control.hold("two")
    turn = await live.dispatch()
    await live.control.wait_started("two")
    await live.kill("agent")

    await live.client.cancel_detached(turn.turn_id)
    await live.kill("turns")
    await live.start("turns", "agent")

    await check_cancelled(live, turn)
    assert live.control.started().count("two") == 1, "a cancelled turn runs no step again"


async def test_a_parked_turn_is_cancelled_and_takes_no_decision_afterwards(
    start_live: StartLive,
) -> None:
    asking = await start_live("approval:builder")
    turn = await asking.dispatch()
    await asking.wait_status(turn, WireStatus.PARKED)

    await asking.client.cancel_detached(turn.turn_id)

    await check_cancelled(asking, turn)
    with pytest.raises(RpcError, match="not parked"):
        await asking.client.resume_detached(turn.turn_id, "yes")


async def test_a_result_that_is_in_the_log_wins(live: Live) -> None:
    turn = await live.dispatch()
    await check_done(live, turn)

    answer = await live.client.cancel_detached(turn.turn_id)

    assert answer.status is WireStatus.DONE
    await check_done(live, turn)


async def test_an_unknown_turn_cannot_be_cancelled(live: Live) -> None:
    with pytest.raises(RpcError, match="unknown turn") as refused:
        await live.client.cancel_detached("nobody")

    assert refused.value.code is ErrorCode.INVALID_PARAMS
