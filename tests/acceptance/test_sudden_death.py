"""kill -9 of any process, of any two and of all, in step three of four: R1 to R4 hold."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support.checkers import page_of
from tests.support.promises import check_done

if TYPE_CHECKING:
    from tests.acceptance.conftest import StartLive
    from tests.support.live import Live
    from vystak_turns.embedded.stack import Part

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    "killed",
    [
        ("agent",),
        ("turns",),
        ("nats",),
        ("agent", "turns"),
        ("nats", "turns"),
        ("nats", "agent", "turns"),
    ],
    ids="+".join,
)
async def test_a_turn_ends_as_if_nothing_had_been_killed(
    live: Live, killed: tuple[Part, ...]
) -> None:
    live.control.hold("three")
    turn = await live.dispatch()
    await live.control.wait_started("three")

    await live.kill(*killed)
    await live.start(*killed)
    live.control.release("three")

    in_flight = ("three",) if "agent" in killed else ()
    await check_done(live, turn, maybe_twice=in_flight)
    begun = Counter(live.control.started())
    assert begun["three"] == (2 if "agent" in killed else 1)
    assert {begun[label] for label in ("one", "two", "four")} == {1}


async def test_a_run_that_finishes_while_turn_control_is_down_is_told_afterwards(
    live: Live,
) -> None:
    live.control.hold("three")
    turn = await live.dispatch()
    await live.control.wait_started("three")
    thread_id = (await live.status(turn)).thread_id
    assert thread_id is not None

    await live.kill("turns")
    live.control.release("three")
    await live.control.wait_completed("four")
    await live.wait_thread_finished(thread_id)
    await live.start("turns")

    await check_done(live, turn)
    assert max(Counter(live.control.started()).values()) == 1


async def test_a_branch_that_was_finished_is_not_run_again_and_stays_in_the_transcript(
    start_live: StartLive,
) -> None:
    live = await start_live("steps:parallel")
    live.control.hold("two", "three")
    turn = await live.dispatch()
    await live.control.wait_started("three")
    await live.control.wait_completed("one")
    await live.wait_stored(turn, branches=1)

    await live.kill("agent")
    await live.start("agent")
    live.control.release("two", "three")

    await check_done(live, turn, maybe_twice=("two", "three"))


async def test_a_sync_step_in_a_thread_goes_on_without_turn_control(
    start_live: StartLive,
) -> None:
    live = await start_live("steps:threads")
    live.control.hold("three")
    turn = await live.dispatch()
    await live.control.wait_started("three")

    await live.kill("turns")
    await live.start("turns")
    live.control.release("three")

    await check_done(live, turn)
    assert live.control.started().count("three") == 1


@pytest.mark.parametrize("killed", ["agent", "turns", "nats"])
async def test_a_sentence_that_was_cut_off_is_read_once(live: Live, killed: Part) -> None:
    live.control.hold("say-2")
    turn = await live.dispatch()
    await live.control.wait_started("say-2")

    await live.kill(killed)
    await live.start(killed)
    live.control.release("say-2")

    log = await check_done(live, turn)
    assert page_of(log).text.count("I start step three now.") == 1
