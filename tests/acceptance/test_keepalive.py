"""A reader that takes silence for an end hears of a quiet turn (VYSTAK_KEEPALIVE_S)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support import checkers
from tests.support.live import Control, live_stack, stack_options
from tests.support.promises import check_done
from tests.support.waiting import ticks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.live import Live, TurnRef

pytestmark = [pytest.mark.processes]

KEEPALIVE = "vystak.turn.keepalive"


async def wait_keepalives(live: Live, turn: TurnRef, count: int) -> None:
    async for _ in ticks(f"{count} keep-alives"):
        log = await live.log(turn)
        if sum(message.type == KEEPALIVE for message in log) >= count:
            return


async def test_a_quiet_step_and_an_absent_agent_are_bridged_by_keepalives(tmp_path: Path) -> None:
    options = replace(
        stack_options("steps:builder", Control(tmp_path / "control")),
        turns_environment={"VYSTAK_KEEPALIVE_S": "0.3"},
    )
    async with live_stack(tmp_path, "steps:builder", options) as live:
        live.control.hold("two")
        turn = await live.dispatch()
        await live.control.wait_started("two")
        await wait_keepalives(live, turn, 2)

        await live.kill("agent")
        await wait_keepalives(live, turn, 4)
        live.control.release("two")
        await live.start("agent")

        log = await check_done(live, turn, maybe_twice=["two"])
        page = checkers.page_of(log)
        assert page.text.count("All four steps are done.") == 1
