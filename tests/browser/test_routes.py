"""The panel's routes as a program uses them (contract of the original panel)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.waiting import ticks

if TYPE_CHECKING:
    from tests.support.panel import PanelStack

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]


async def asked(panel: PanelStack) -> tuple[str, str]:
    """Return conversation and turn of a parked turn."""
    conversation_id = await panel.conversation()
    path = f"/conversations/{conversation_id}"
    sent = await panel.api.post(f"{path}/messages", json={"text": "delete"})
    assert sent.status_code == 202
    async for _ in ticks("the turn is parked"):
        status = (await panel.api.get(f"{path}/status")).json()
        if status.get("status") == "parked":
            break
    return conversation_id, sent.json()["turn_id"]


async def test_only_the_active_turn_of_a_known_conversation_can_be_decided(
    panel: PanelStack,
) -> None:
    conversation_id, turn_id = await asked(panel)
    right = {"turn_id": turn_id, "approved": True, "note": None}
    wrong_turn = {**right, "turn_id": "another"}
    stale = {**right, "park_generation": 7}

    answers = [
        await panel.api.post(f"/conversations/{conversation}/approval", json=decision)
        for conversation, decision in (
            ("unknown", right),
            (conversation_id, wrong_turn),
            (conversation_id, stale),
            (conversation_id, right),
        )
    ]

    assert [answer.status_code for answer in answers] == [404, 422, 409, 200]
    assert answers[-1].json() == {"ok": True}
    await panel.wait_settled(conversation_id)


async def test_a_decision_that_nobody_takes_can_be_sent_again(panel: PanelStack) -> None:
    conversation_id, turn_id = await asked(panel)
    path = f"/conversations/{conversation_id}/approval"
    decision = {"turn_id": turn_id, "approved": False, "note": "no"}
    await panel.live.kill("turns")

    refused = await panel.api.post(path, json=decision)
    assert refused.status_code == 503
    await panel.live.start("turns")
    assert (await panel.api.post(path, json=decision)).status_code == 200

    messages = await panel.wait_settled(conversation_id)
    assert "Denied by you@localhost: no" in messages[-1]["content"]


async def test_a_message_must_have_text_and_a_free_conversation(panel: PanelStack) -> None:
    conversation_id = await panel.conversation()
    path = f"/conversations/{conversation_id}/messages"
    panel.live.control.hold("one")

    codes = [
        (await panel.api.post(path, json={"text": text})).status_code
        for text in ("", "  \n ", "Go.", "Once more.")
    ]

    assert codes == [422, 422, 202, 409]
    panel.live.control.release("one")
    messages = await panel.wait_settled(conversation_id)
    assert [message["role"] for message in messages] == ["user", "assistant"]


async def test_a_message_is_dispatched_though_the_panel_dies_before_it_could(
    panel: PanelStack,
) -> None:
    conversation_id = await panel.conversation()
    path = f"/conversations/{conversation_id}/messages"
    await panel.live.kill("turns")

    async with asyncio.TaskGroup() as group:
        sending = group.create_task(unanswered(panel, path))
        async for _ in ticks("the panel has kept the message"):
            if (await panel.messages(conversation_id))["messages"]:
                break
        await panel.live.kill("panel")
        await sending
    await panel.live.start("turns", "panel")

    messages = await panel.wait_settled(conversation_id)
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert messages[-1]["state"] == "done"


async def unanswered(panel: PanelStack, path: str) -> None:
    with pytest.raises(httpx.TransportError):
        await panel.api.post(path, json={"text": "Go."})


async def test_a_stream_has_the_contracts_frames_and_goes_on_from_an_id(
    panel: PanelStack,
) -> None:
    conversation_id = await panel.conversation()
    path = f"/conversations/{conversation_id}"
    panel.live.control.hold("four")
    turn_id = (await panel.api.post(f"{path}/messages", json={"text": "Go."})).json()["turn_id"]
    await panel.live.control.wait_started("four")

    frames, ids = await read(panel, f"{path}/stream", {}, until="four")
    half = len(frames) // 2
    rest, _ = await read(panel, f"{path}/stream", {"Last-Event-ID": ids[half]}, until="four")

    assert rest == frames[half + 1 :]
    assert {frame["turn_id"] for frame in frames} == {turn_id}
    assert {frame["type"] for frame in frames} == {"delta", "tool_call", "tool_result"}
    panel.live.control.release("four")
    await panel.wait_settled(conversation_id)
    assert (await panel.api.get(f"{path}/stream")).status_code == 204


async def read(
    panel: PanelStack, path: str, headers: dict[str, str], until: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Read frames to the tool call that has the word."""
    frames: list[dict[str, Any]] = []
    ids: list[str] = []
    async with panel.api.stream("GET", path, headers=headers) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("id: "):
                ids.append(line[4:])
            if not line.startswith("data: "):
                continue
            frames.append(json.loads(line[6:]))
            if frames[-1]["type"] == "tool_call" and until in frames[-1]["arguments"]:
                break
    return frames, ids
