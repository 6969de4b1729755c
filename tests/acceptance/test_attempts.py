"""An agent that dies at the same step is given up after three attempts, one that gets on is not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support import checkers
from tests.support.promises import LABELS, check_done
from vystak_turns_rpc.vocabulary import FailureCode, WireStatus

if TYPE_CHECKING:
    from tests.support.live import Live

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

START_AND_THREE_ATTEMPTS = 4
MANY_RESTARTS_S = 60.0


async def test_a_turn_whose_agent_always_dies_in_one_step_fails_after_three_attempts(
    live: Live,
) -> None:
    live.control.let_die("three", None)
    turn = await live.dispatch()

    async with live.kept_alive("agent"):
        await live.wait_end(turn, MANY_RESTARTS_S)

    status = await live.wait_status(turn, WireStatus.FAILED)
    log = await live.log(turn)
    checkers.check_one_end(log, "response.failed")
    checkers.check_sequence(log)
    checkers.check_steps_once(live.control.completed(), ["one", "two"])
    assert live.control.started().count("three") == START_AND_THREE_ATTEMPTS
    assert status.error is not None
    assert status.error.code == FailureCode.ATTEMPTS_EXHAUSTED
    assert log[-1].event["response"]["error"]["code"] == FailureCode.ATTEMPTS_EXHAUSTED


async def test_four_deaths_with_progress_between_them_do_not_end_a_turn(
    live: Live,
) -> None:
    for label in LABELS:
        live.control.let_die(label, 1)
    turn = await live.dispatch()

    async with live.kept_alive("agent"):
        await live.wait_end(turn, MANY_RESTARTS_S)

    await check_done(live, turn)
    begun = Counter(live.control.started())
    assert begun == Counter({"input": 1} | dict.fromkeys(LABELS, 2))
