"""A turn that asks waits as long as it takes, through restarts, and takes one decision (R6)."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.support import checkers
from tests.support.graphs.approval import QUESTION, SPOKEN
from tests.support.promises import check_done
from vystak_turns_rpc.errors import ErrorCode, RpcError
from vystak_turns_rpc.vocabulary import FailureCode, WireStatus

if TYPE_CHECKING:
    from tests.acceptance.conftest import StartLive
    from tests.support.live import Live, TurnRef

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

STEPS = ("one", "two")


@pytest_asyncio.fixture(loop_scope="session")
async def asking(start_live: StartLive) -> Live:
    """A stack whose agent asks for leave after step one."""
    return await start_live("approval:builder")


async def parked(live: Live) -> TurnRef:
    turn = await live.dispatch()
    await live.wait_status(turn, WireStatus.PARKED)
    return turn


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_parked_turn_survives_both_restarts_and_its_words_are_read_once(
    asking: Live, number: signal.Signals
) -> None:
    turn = await parked(asking)
    await asking.kill("agent", "turns", number=number)
    await asking.start("agent", "turns")

    status = await asking.status(turn)
    assert (status.status, status.interrupt) == (WireStatus.PARKED, QUESTION)
    await asking.client.resume_detached(turn.turn_id, "yes", status.park_generation)

    log = await check_done(asking, turn, STEPS)
    page = checkers.page_of(log)
    assert page.text.count(SPOKEN) == 1
    assert page.text.count("The answer is yes.") == 1
    asked = [message.event for message in log if message.type == "vystak.approval.requested"]
    assert [event["payload"] for event in asked] == [QUESTION]


@pytest.mark.parametrize("decision", [None, {}, [], False, {"allow": True}], ids=repr)
async def test_any_json_is_a_decision(asking: Live, decision: Any) -> None:
    turn = await parked(asking)

    await asking.client.resume_detached(turn.turn_id, decision)

    log = await check_done(asking, turn, STEPS)
    assert f"The answer is {decision}." in checkers.page_of(log).text


async def test_an_accepted_decision_arrives_though_everything_dies_right_after_it(
    asking: Live,
) -> None:
    turn = await parked(asking)

    await asking.client.resume_detached(turn.turn_id, "yes")
    await asking.kill("agent", "turns", "nats")
    await asking.start("nats", "agent", "turns")

    log = await check_done(asking, turn, STEPS, maybe_twice=["two"])
    assert checkers.page_of(log).text.count("The answer is yes.") == 1


async def test_a_second_decision_of_the_same_question_is_refused(asking: Live) -> None:
    asking.control.hold("two")
    turn = await parked(asking)
    generation = (await asking.status(turn)).park_generation
    await asking.client.resume_detached(turn.turn_id, "yes", generation)

    with pytest.raises(RpcError, match="not parked") as refused:
        await asking.client.resume_detached(turn.turn_id, "no", generation)

    assert refused.value.code == ErrorCode.INVALID_PARAMS
    asking.control.release("two")
    log = await check_done(asking, turn, STEPS)
    assert "The answer is yes." in checkers.page_of(log).text


async def test_a_decision_of_another_question_is_refused_and_changes_nothing(
    asking: Live,
) -> None:
    turn = await parked(asking)
    rows, log = asking.journal_rows(), await asking.log(turn)
    generation = (await asking.status(turn)).park_generation
    assert generation is not None

    with pytest.raises(RpcError) as refused:
        await asking.client.resume_detached(turn.turn_id, "yes", generation + 1)

    assert refused.value.code == ErrorCode.INVALID_PARAMS
    assert asking.journal_rows() == rows
    assert await asking.log(turn) == log


async def test_a_resume_of_a_running_turn_is_refused_and_changes_nothing(live: Live) -> None:
    live.control.hold("three")
    turn = await live.dispatch()
    await live.control.wait_started("three")
    await live.wait_told(turn, "call_1_three")
    rows, log = live.journal_rows(), await live.log(turn)

    with pytest.raises(RpcError, match="not parked") as refused:
        await live.client.resume_detached(turn.turn_id, "yes")

    assert refused.value.code == ErrorCode.INVALID_PARAMS
    assert live.journal_rows() == rows
    assert await live.log(turn) == log
    live.control.release("three")
    await check_done(live, turn)


async def test_a_resume_of_an_ended_or_unknown_turn_is_refused_and_changes_nothing(
    live: Live,
) -> None:
    turn = await live.dispatch()
    log = await check_done(live, turn)
    rows = live.journal_rows()

    with pytest.raises(RpcError, match="not parked") as ended:
        await live.client.resume_detached(turn.turn_id, "yes")
    with pytest.raises(RpcError) as unknown:
        await live.client.resume_detached("nobody-knows-it", "yes")

    assert ended.value.code == unknown.value.code == ErrorCode.INVALID_PARAMS
    assert live.journal_rows() == rows
    assert await live.log(turn) == log


async def test_of_many_decisions_at_once_exactly_one_wins(asking: Live) -> None:
    turn = await parked(asking)

    outcomes = await asyncio.gather(
        *(asking.client.resume_detached(turn.turn_id, f"number {i}") for i in range(20)),
        return_exceptions=True,
    )

    winners = [i for i, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
    assert len(winners) == 1
    assert all(isinstance(o, RpcError) for i, o in enumerate(outcomes) if i not in winners)
    log = await check_done(asking, turn, STEPS)
    assert f"The answer is number {winners[0]}." in checkers.page_of(log).text


async def test_a_new_message_on_a_parked_thread_ends_the_parked_turn(asking: Live) -> None:
    first = await parked(asking)
    thread_id = (await asking.status(first)).thread_id
    asking.control.forget()

    second = await asking.dispatch(thread_id, "Do something else.")

    await asking.wait_end(first)
    ended = await asking.wait_status(first, WireStatus.FAILED)
    assert ended.error is not None
    assert ended.error.code == FailureCode.SUPERSEDED
    checkers.check_one_end(await asking.log(first), "response.failed")
    await asking.wait_status(second, WireStatus.PARKED)
    await asking.client.resume_detached(second.turn_id, "yes")
    await check_done(asking, second, STEPS)
