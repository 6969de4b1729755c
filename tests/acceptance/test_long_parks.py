"""W32: a park that outlives its log. Readers who come later still see the whole turn."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support import checkers
from tests.support.graphs.approval import SPOKEN
from vystak_turns_rpc.vocabulary import WireStatus

if TYPE_CHECKING:
    from tests.acceptance.conftest import StartLive

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("service_too", [False, True], ids=["log", "log+turns"])
async def test_w32_a_turn_whose_log_was_lost_while_it_was_parked_is_whole_again_once_decided(
    start_live: StartLive, *, service_too: bool
) -> None:
    asking = await start_live("approval:builder")
    turn = await asking.dispatch()
    await asking.wait_status(turn, WireStatus.PARKED)
    before = await asking.log(turn)

    stopped = ("nats", "turns") if service_too else ("nats",)
    await asking.kill(*stopped)
    shutil.rmtree(asking.stack.places.nats_data)
    await asking.start(*stopped)
    assert await asking.log(turn) == []
    parked = await asking.status(turn)
    await asking.client.resume_detached(turn.turn_id, "yes", parked.park_generation)
    await asking.wait_end(turn)
    await asking.wait_status(turn, WireStatus.DONE)

    log, thread = await asking.log(turn), await asking.messages_of(turn)
    checkers.check_one_end(log, "response.completed")
    checkers.check_shown_is_done(log, thread)
    checkers.check_whole_reply(log, thread)
    assert checkers.page_of(log).text.count(SPOKEN) == 1
    assert not {message.seq for message in before} & {message.seq for message in log}
    checkers.check_steps_once(asking.control.completed(), ["one", "two"])
