from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent.graphs import Gates, asking, plain_tools
from tests.integration.agent.harness import TURN, Client, fold, running_agent, until

MARKER = "vystak.checkpoint"


@pytest.fixture
def gates() -> Gates:
    return Gates()


def words(events: list[dict[str, Any]]) -> list[str]:
    """The events' types, text deltas of one message taken together."""
    kinds: list[str] = []
    for event in events:
        if event["type"] != "response.output_text.delta" or kinds[-1] != event["type"]:
            kinds.append(event["type"])
    return kinds


async def test_a_turn_streams_its_events_in_order(tmp_path: Path, gates: Gates) -> None:
    gates.open("ask", "look", "answer")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        events = await agent.dispatch().all()
    assert words(events) == [
        "response.created",
        MARKER,
        "response.output_text.delta",
        "response.output_text.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        MARKER,
        "response.output_item.added",
        MARKER,
        "response.output_text.delta",
        "response.output_text.done",
        MARKER,
        "response.completed",
        "[DONE]",
    ]
    assert events[-2]["response"]["output"][0]["content"][0]["text"] == "let me lookall is done"


async def test_text_is_told_before_its_step_is_committed(tmp_path: Path, gates: Gates) -> None:
    gates.open("ask")
    async with running_agent(asking(gates), tmp_path / "s.db") as agent:
        events = await agent.dispatch().all()
    deltas = [event["delta"] for event in events if event["type"].endswith("text.delta")]
    assert deltas == ["may ", "I ", "do ", "it"]


async def test_a_marker_is_only_told_once_its_checkpoint_is_stored(
    tmp_path: Path, gates: Gates
) -> None:
    gates.open("ask")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        async with agent.dispatch().opened() as events:
            await until(events, type="response.function_call_arguments.done")
            marker = (await until(events, type=MARKER))[-1]
            assert (await agent.checkpoint())["checkpoint_id"] == marker["checkpoint_id"]
        gates.open("look", "answer")
        await agent.idle()


async def test_the_checkpoint_route_follows_a_turn(tmp_path: Path, gates: Gates) -> None:
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        unseen = await agent.checkpoint()
        async with agent.dispatch(epoch=7).opened():
            await gates.reached("ask")
            middle = await agent.checkpoint()
            gates.open("ask", "look", "answer")
        end = await agent.idle()
    assert unseen == {
        "checkpoint_id": None,
        "interrupted": False,
        "interrupts": [],
        "interrupt_ids": [],
        "turn_id": None,
        "epoch": None,
        "active": False,
        "finished": False,
        "error": None,
        "turns": [],
    }
    assert (middle["active"], middle["finished"], middle["interrupted"]) == (True, False, True)
    assert (middle["turn_id"], middle["epoch"], middle["turns"]) == (TURN, 7, [TURN])
    assert (end["active"], end["finished"], end["interrupted"]) == (False, True, False)


async def test_losing_the_reader_does_not_stop_the_run(tmp_path: Path, gates: Gates) -> None:
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        async with agent.dispatch().opened() as events:
            await until(events, type=MARKER)
        gates.open("ask", "look", "answer")
        standing = await agent.idle()
        told = await agent.resume().all()
    assert standing["finished"]
    assert list(gates.begun.values()) == [1, 1, 1]
    assert [*fold(told)["text"].values()] == ["let me look", "all is done"]


async def test_a_resume_of_a_finished_turn_tells_it_whole_and_runs_nothing(
    tmp_path: Path, gates: Gates
) -> None:
    gates.open("ask", "look", "answer")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        live = await agent.dispatch().all()
        told = await agent.resume().all()
    assert fold(told) == fold(live)
    assert told[-2]["response"]["output"] == live[-2]["response"]["output"]
    assert gates.begun.total() == 3


async def test_catch_up_from_each_marker_is_exactly_the_rest(tmp_path: Path, gates: Gates) -> None:
    gates.open("ask", "look", "answer")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        await agent.dispatch().all()
        whole = await agent.resume().all()
        places = [place for place, event in enumerate(whole) if event["type"] == MARKER]
        assert len(places) == 4
        for place in places:
            rest = await agent.resume(after_checkpoint_id=whole[place]["checkpoint_id"]).all()
            assert rest == [whole[0], *whole[place + 1 :]]


async def test_a_drained_run_stops_after_its_step_and_is_continued(
    tmp_path: Path, gates: Gates
) -> None:
    gates.open("ask")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        async with agent.dispatch().opened() as events:
            await gates.reached("look")
            assert (await agent.drain()).json() == {"active": True}
            gates.open("look", "answer")
            before = [event async for event in events]
        standing = await agent.idle()
        after = before[-2]["checkpoint_id"]
        rest = await agent.resume(after_checkpoint_id=after, epoch=2).all()
    assert before[-1] == {"type": "vystak.drained"}
    assert (standing["finished"], standing["error"], standing["interrupted"]) == (False, None, True)
    assert standing["checkpoint_id"] == after
    assert list(gates.begun.values()) == [1, 1, 1]
    assert words(rest)[1:3] == ["response.output_text.delta", "response.output_text.done"]
    assert words(rest)[-2:] == ["response.completed", "[DONE]"]


async def test_a_drain_of_an_idle_thread_says_so(tmp_path: Path, gates: Gates) -> None:
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        assert (await agent.drain()).json() == {"active": False}


async def test_a_second_turn_tells_only_its_own(tmp_path: Path, gates: Gates) -> None:
    gates.open("ask", "look", "answer")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        first = await agent.dispatch().all()
        live = await agent.dispatch(turn_id="turn-2", epoch=2).all()
        told = await agent.resume(turn_id="turn-2", epoch=2).all()
        standing = await agent.checkpoint()
    assert fold(told) == fold(live)
    assert fold(live)["text"].keys().isdisjoint(fold(first)["text"])
    assert standing["turns"] == [TURN, "turn-2"]


async def test_stamps_are_found_again_by_a_new_process(tmp_path: Path, gates: Gates) -> None:
    gates.open("ask", "look", "answer")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        await agent.dispatch(epoch=5).all()
        await agent.dispatch(turn_id="turn-2", epoch=9).all()
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        standing = await agent.checkpoint()
        refusal = await agent.resume(turn_id="turn-2", epoch=8).refusal()
    assert (standing["turns"], standing["epoch"]) == ([TURN, "turn-2"], 9)
    assert refusal == (409, "stale_epoch")


async def test_a_parked_turn_ends_without_a_terminal_event(tmp_path: Path, gates: Gates) -> None:
    async with running_agent(asking(gates), tmp_path / "s.db") as agent:
        live = await agent.dispatch().all()
        standing = await agent.checkpoint()
        told = await agent.resume().all()
    assert standing["interrupts"] == [{"question": "may I"}]
    assert len(standing["interrupt_ids"]) == 1
    assert (standing["interrupted"], standing["finished"]) == (True, False)
    assert live[-1]["type"] == "vystak.rollback"
    assert words(told) == ["response.created", MARKER]
    assert fold(live) == fold(told)


async def test_a_decision_reaches_its_question_and_speech_is_told_once(
    tmp_path: Path, gates: Gates
) -> None:
    async with running_agent(asking(gates), tmp_path / "s.db") as agent:
        live = await agent.dispatch().all()
        standing = await agent.checkpoint()
        decisions = {standing["interrupt_ids"][0]: "yes"}
        after = standing["checkpoint_id"]
        more = await agent.resume(after_checkpoint_id=after, epoch=2, decisions=decisions).all()
        told = await agent.resume(epoch=2).all()
    assert [*fold([*live, *more])["text"].values()] == ["may I do it", "you said yes"]
    assert fold(told) == fold([*live, *more])
    assert gates.begun["ask"] == 2


async def refusals(agent: Client) -> None:
    """Everything that must be refused while turn-1 runs under epoch 5."""
    assert await agent.dispatch(epoch=4).refusal() == (409, "stale_epoch")
    assert await agent.resume(epoch=4).refusal() == (409, "stale_epoch")
    assert (await agent.drain(4)).json()["reason"] == "stale_epoch"
    assert await agent.dispatch(turn_id="turn-2", epoch=5).refusal() == (409, "busy")
    assert await agent.dispatch(epoch=5).refusal() == (409, "busy")
    assert await agent.resume(epoch=6).refusal() == (409, "busy")


async def test_lower_epochs_and_second_runs_are_refused(tmp_path: Path, gates: Gates) -> None:
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        async with agent.dispatch(epoch=5).opened():
            await gates.reached("ask")
            await refusals(agent)
            gates.open("ask", "look", "answer")
        await agent.idle()
        assert await agent.resume(epoch=5).refusal() == (409, "stale_epoch")
        assert await agent.dispatch(epoch=6).refusal() == (409, "not_pending")
        unknown = agent.resume(epoch=6, after_checkpoint_id="1f1ec299-0000-6000-8000-000000000000")
        assert await unknown.refusal() == (404, "unknown_checkpoint")
        elsewhere = agent.resume(thread_id="resp_unseen")
        assert await elsewhere.refusal() == (404, "unknown_thread")
        undecided = agent.resume(epoch=6, decisions={"nothing": 1})
        assert await undecided.refusal() == (409, "not_pending")
        assert await agent.resume(epoch=6, turn_id="other").refusal() == (409, "not_pending")
    assert gates.begun.total() == 3


async def test_a_drain_makes_its_epoch_the_lowest(tmp_path: Path, gates: Gates) -> None:
    gates.open("ask", "look", "answer")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        await agent.drain(8)
        assert await agent.dispatch(epoch=7).refusal() == (409, "stale_epoch")
        assert (await agent.dispatch(epoch=8).all())[-1]["type"] == "[DONE]"


async def test_of_many_calls_at_once_exactly_one_runs(tmp_path: Path, gates: Gates) -> None:
    async with running_agent(asking(gates), tmp_path / "s.db") as agent:
        await agent.dispatch().all()
        (asked,) = (await agent.checkpoint())["interrupt_ids"]
        calls = [agent.resume(decisions={asked: number}) for number in range(50)]
        answers = await asyncio.gather(
            *(agent.http.post(call.path, json=call.body) for call in calls)
        )
    accepted = [answer for answer in answers if answer.status_code == 200]
    reasons = {answer.json()["reason"] for answer in answers if answer.status_code != 200}
    assert len(accepted) == 1
    assert reasons <= {"busy", "not_pending"}
    assert gates.begun["ask"] == 2
