"""A turn in real containers: kill -9, restart, down and up, down --volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support import checkers
from tests.support.boxes import PATIENCE_S, Boxes, volumes
from tests.support.waiting import ticks
from vystak_turns_rpc.vocabulary import WireStatus

if TYPE_CHECKING:
    import httpx

    from tests.support.live import TurnRef

pytestmark = [pytest.mark.containers, pytest.mark.asyncio(loop_scope="session")]

LABELS = ("one", "two", "three", "four")
APPROVED = {"approved": True, "decided_by": "you@localhost", "note": None}
VOLUMES = {"vystak-agent-assistant-data", "vystak-nats-data", "vystak-panel-state"}


async def check_done(
    boxes: Boxes, turn: TurnRef, labels: tuple[str, ...] = LABELS, maybe_twice: tuple[str, ...] = ()
) -> None:
    """R1 to R4 for a turn that ends well."""
    await boxes.wait_end(turn)
    status = await boxes.wait_status(turn, WireStatus.DONE)
    assert status.thread_id is not None
    log, thread = await boxes.log(turn), await boxes.messages_of(status.thread_id)
    checkers.check_one_end(log, "response.completed")
    checkers.check_sequence(log)
    checkers.check_shown_is_done(log, thread)
    checkers.check_whole_reply(log, thread)
    checkers.check_steps_once(await boxes.completed(), labels, maybe_twice)


@pytest.mark.parametrize("service", ["agent", "turns", "nats"])
async def test_a_turn_survives_kill_9_of_a_container(boxes: Boxes, service: str) -> None:
    turn = await boxes.dispatch()
    await boxes.wait_completed("one", "two")
    before = await boxes.row(turn.turn_id)
    assert before is not None
    assert (before["status"], before["attempts"]) == ("running", 0)
    assert before["thread_id"]

    await boxes.kill(service)

    await check_done(boxes, turn, maybe_twice=("three",) if service == "agent" else ())
    after = await boxes.row(turn.turn_id)
    assert after is not None
    assert after["last_seq"] > before["last_seq"]
    # No claim of a turn whose agent and driver both lived.
    assert after["redrives"] >= (1 if service == "agent" else 0)
    await boxes.wait_healthy()


@pytest.mark.parametrize("service", ["agent", "turns"])
async def test_a_restart_of_a_container_repeats_no_step_and_costs_nothing(
    boxes: Boxes, service: str
) -> None:
    turn = await boxes.dispatch()
    await boxes.wait_completed("one", "two")

    await boxes.restart(service)

    await check_done(boxes, turn)
    row = await boxes.row(turn.turn_id)
    assert row is not None
    assert row["redrives"] == 0


async def test_an_approval_given_after_everything_was_down_and_up_again_counts(
    boxes: Boxes,
) -> None:
    turn = await boxes.dispatch("Please delete the old files")
    await boxes.wait_status(turn, WireStatus.PARKED)
    asked = await boxes.log(turn)

    await boxes.compose("down")
    assert await volumes() >= VOLUMES
    await boxes.up()

    status = await boxes.status(turn)
    assert status.status is WireStatus.PARKED
    assert status.interrupt["tool"] == "delete_files"
    assert await boxes.log(turn) == asked
    assert await boxes.completed() == []
    async with boxes.client() as client:
        await client.resume_detached(turn.turn_id, APPROVED)
    await check_done(boxes, turn, ("delete",))


async def test_down_with_its_volumes_forgets_everything(boxes: Boxes) -> None:
    turn = await boxes.dispatch("repeat hello")
    await boxes.wait_status(turn, WireStatus.DONE)

    await boxes.compose("down", "--volumes")
    assert not await volumes() & VOLUMES
    await boxes.up()

    assert (await boxes.status(turn)).status is WireStatus.UNKNOWN
    assert await boxes.log(turn) == []


async def begin(api: httpx.AsyncClient, text: str) -> tuple[str, str]:
    """Say something in a new conversation; returns its id and the turn's."""
    created = await api.post("/projects/default/conversations")
    conversation: str = created.json()["id"]
    sent = await api.post(f"/conversations/{conversation}/messages", json={"text": text})
    turn: str = sent.json()["turn_id"]
    return conversation, turn


async def settled(api: httpx.AsyncClient, conversation: str) -> list[dict[str, Any]]:
    """Wait until the panel has concluded the turn and return its rows of the assistant."""
    async for _ in ticks("the panel has concluded the turn", PATIENCE_S):
        found = (await api.get(f"/conversations/{conversation}/messages")).json()
        if found["conversation"]["active_turn_id"] is None:
            return [one for one in found["messages"] if one["role"] == "assistant"]
    raise AssertionError


async def test_the_panel_keeps_one_whole_row_when_the_agent_restarts_in_step_three(
    boxes: Boxes,
) -> None:
    async with boxes.panel() as api:
        conversation, turn = await begin(api, "Do the four steps")
        await boxes.wait_completed("one", "two")

        await boxes.restart("agent")

        (row,) = await settled(api, conversation)
        stream = await api.get(f"/conversations/{conversation}/stream")
    assert row["turn_id"] == turn
    assert row["content"].endswith("All four steps are done.")
    assert await boxes.completed() == list(LABELS)
    assert stream.status_code == 204


@pytest.mark.parametrize(("approved", "effects"), [(True, ["delete"]), (False, [])])
async def test_a_decision_in_the_panel_has_its_effect_once(
    boxes: Boxes, approved: bool, effects: list[str]
) -> None:
    async with boxes.panel() as api:
        conversation, turn = await begin(api, "Please delete the old files")
        async for _ in ticks("the question is kept", PATIENCE_S):
            found = (await api.get(f"/conversations/{conversation}/messages")).json()
            if "approval-requested" in str(found["messages"]):
                break
        assert await boxes.completed() == []

        url = f"/conversations/{conversation}/approval"
        decided = await api.post(url, json={"turn_id": turn, "approved": approved})
        (row,) = await settled(api, conversation)

    assert decided.json() == {"ok": True}
    assert row["turn_id"] == turn
    assert await boxes.completed() == effects


async def test_a_turn_whose_browser_went_away_still_lands_in_the_panel(boxes: Boxes) -> None:
    async with boxes.panel() as api:
        conversation, turn = await begin(api, "Do the four steps")
        url = f"/conversations/{conversation}/stream"
        async with api.stream("GET", url) as stream:
            async for _ in stream.aiter_lines():
                break

        (row,) = await settled(api, conversation)
        again = await api.get(url)
    assert row["turn_id"] == turn
    assert row["content"].endswith("All four steps are done.")
    assert again.status_code == 204
