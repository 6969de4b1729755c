"""A journal that the original's bridge left behind, taken over in place (docs/upgrading.md).

The agent is asked without stamps, as the original does, and killed; journal and log are made by
hand as it would have left them. Then turn control starts on them.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.support import checkers
from tests.support.graphs.approval import QUESTION
from tests.support.live import Live, TurnRef, live_stack
from tests.support.original import OriginalTurn, forget_stamps, write_journal
from tests.support.promises import LABELS, check_done
from tests.support.waiting import until
from vystak_turns_rpc.vocabulary import WireStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

THREAD = "resp_" + "c" * 24


@pytest_asyncio.fixture(loop_scope="session")
async def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Live]:
    """A stack of the test's own: it gets another journal."""
    async with live_stack(tmp_path, getattr(request, "param", "steps:builder")) as live:
        yield live


def a_turn(thread_id: str | None = THREAD, **more: Any) -> OriginalTurn:
    turn_id = uuid.uuid4().hex
    request = {"model": "", "input": "Go.", "previous_response_id": thread_id, "stream": True}
    subject = f"vystak.default.streams.{uuid.uuid4().hex}.{turn_id}"
    return OriginalTurn(turn_id, subject, request, **more)


def ref(turn: OriginalTurn) -> TurnRef:
    return TurnRef(turn.turn_id, turn.subject, turn.request)


async def begin(live: Live, turn: OriginalTurn, label: str) -> None:
    """Carry out a turn as the original does, and kill the agent in this step."""
    live.control.hold(label)
    over = asyncio.Event()
    reading = asyncio.create_task(turn.run(live.stack.agent_url, over, lambda: None))
    await live.control.wait_started(label)
    await until(lambda: turn.told[-1].get("item", {}).get("type") != "message", "it is told")
    await live.kill("agent", "turns")
    live.control.release(label)
    await reading
    forget_stamps(live.stack.places.sessions_db)


async def take_over(live: Live, turns: list[OriginalTurn]) -> None:
    for turn in turns:
        await turn.publish(live.broker)
    write_journal(live.stack.places.turns_db, turns)
    await live.start("agent", "turns")


async def test_a_turn_of_the_original_goes_on_where_its_thread_stands(fresh: Live) -> None:
    turn = a_turn()
    await begin(fresh, turn, "three")

    await take_over(fresh, [turn])

    log = await check_done(fresh, ref(turn), maybe_twice=["three"])
    (rewind,) = [one for one in log if one.type == "vystak.turn.rewind"]
    assert rewind.seq == len(turn.told)
    assert rewind.event["to_seq"] == max(turn.boundaries.values())


async def test_a_turn_that_never_reached_the_agent_is_dispatched(fresh: Live) -> None:
    turn = a_turn(None)
    await fresh.kill("agent", "turns")

    await take_over(fresh, [turn])

    await check_done(fresh, ref(turn))


async def test_of_several_unfinished_turns_on_a_thread_the_last_goes_on_and_the_others_end(
    fresh: Live,
) -> None:
    parked, running, last = a_turn(), a_turn(), a_turn()
    await begin(fresh, last, "three")
    parked.thread_id = running.thread_id = THREAD
    parked.told.append({"type": "response.created", "response": {"id": THREAD}})
    parked.park(QUESTION)
    running.told.append({"type": "response.created", "response": {"id": THREAD}})

    await take_over(fresh, [parked, running, last])

    await check_done(fresh, ref(last), maybe_twice=["three"])
    for turn in (parked, running):
        status = await fresh.wait_status(ref(turn), WireStatus.FAILED)
        assert status.error is not None
        assert status.error.code == "superseded"
        log = await fresh.log(ref(turn))
        checkers.check_one_end(log, "response.failed")
        checkers.check_sequence(log)


@pytest.mark.parametrize("fresh", ["approval:builder"], indirect=True)
async def test_a_parked_turn_of_the_original_is_asked_for_again_and_resumed(fresh: Live) -> None:
    turn = a_turn()
    over = asyncio.Event()
    await turn.run(fresh.stack.agent_url, over, lambda: None)
    turn.park(QUESTION)
    await fresh.kill("agent", "turns")
    forget_stamps(fresh.stack.places.sessions_db)

    await take_over(fresh, [turn])

    status = await fresh.wait_status(ref(turn), WireStatus.PARKED)
    assert status.interrupt == QUESTION
    await fresh.client.resume_detached(turn.turn_id, "yes")
    await fresh.wait_end(ref(turn))
    await fresh.wait_status(ref(turn), WireStatus.DONE)
    log = await fresh.log(ref(turn))
    checkers.check_one_end(log, "response.completed")
    checkers.check_sequence(log)
    checkers.check_shown_is_done(log, await fresh.messages_of(ref(turn)))
    checkers.check_steps_once(fresh.control.completed(), ["one", "two"], [])


async def test_turns_that_had_ended_stay_as_they_were(fresh: Live) -> None:
    done, failed = a_turn(status="done"), a_turn(status="failed")
    await fresh.kill("agent", "turns")

    await take_over(fresh, [done, failed])

    assert (await fresh.status(ref(done))).status is WireStatus.DONE
    assert (await fresh.status(ref(failed))).status is WireStatus.FAILED
    assert await fresh.log(ref(done)) == await fresh.log(ref(failed)) == []
    after = await fresh.dispatch(THREAD)
    await check_done(fresh, after, LABELS)
