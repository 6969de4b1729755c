"""Nobody but turn control can write into a turn's log (R10)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.promises import check_done
from tests.support.roles import connected
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.live import Live

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

FORGERY = json.dumps({"seq": 99, "event": {"type": "vystak.turn.rewind", "to_seq": -1}}).encode()


async def test_a_rewind_forged_with_the_panels_credentials_is_refused_and_changes_nothing(
    live: Live,
) -> None:
    live.control.hold("three")
    turn = await live.dispatch()
    await live.control.wait_started("three")
    await live.wait_told(turn, "call_1_three")
    log = await live.log(turn)

    async with connected(live.panel_url) as panel:
        await panel.client.publish(turn.subject, FORGERY)
        await panel.client.flush()
        await until(lambda: bool(panel.violations), "the broker refused the forgery")

    assert turn.subject in panel.violations[0]
    assert await live.log(turn) == log
    live.control.release("three")
    assert await check_done(live, turn)
