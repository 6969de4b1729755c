"""R3: whatever was streamed, its fold is the fold of what is kept."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import interrupt

from tests.integration.agent.graphs import Gates, Speaker, one_node, side_by_side
from tests.integration.agent.harness import Client, fold, running_agent, until

ROLLBACK = "vystak.rollback"


class IdsLost(TypedDict):
    messages: Annotated[list, operator.add]


@pytest.fixture
def gates() -> Gates:
    return Gates()


async def told_and_kept(
    agent: Client,
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Run a turn to its end or park; fold what was told and what is kept."""
    live = await agent.dispatch().all()
    kept = await agent.resume().all()
    return fold(live), fold(kept), live


async def say(text: str, message_id: str | None = None) -> AIMessage:
    message = await Speaker(text=text).ainvoke("")
    assert isinstance(message, AIMessage)
    return message.model_copy(update={"id": message_id}) if message_id else message


async def test_private_words_of_a_router_are_taken_back(tmp_path: Path) -> None:
    async def route(state: MessagesState) -> dict[str, Any]:
        await say("secret thoughts about routing")
        return {"messages": [AIMessage("hello")]}

    async with running_agent(one_node("route", route), tmp_path / "s.db") as agent:
        told, kept, live = await told_and_kept(agent)
    assert told == kept
    assert [*told["text"].values()] == ["hello"]
    assert ROLLBACK in [event["type"] for event in live]


async def test_private_words_without_any_message_are_taken_back(tmp_path: Path) -> None:
    async def route(state: MessagesState) -> dict[str, Any]:
        await say("secret thoughts")
        return {}

    async with running_agent(one_node("route", route), tmp_path / "s.db") as agent:
        told, kept, _ = await told_and_kept(agent)
    assert told == kept
    assert not told["text"]


async def test_a_message_that_the_node_changed_after_speaking_is_told_as_kept(
    tmp_path: Path,
) -> None:
    async def edit(state: MessagesState) -> dict[str, Any]:
        spoken = await say("rough words")
        return {"messages": [spoken.model_copy(update={"content": "kind words"})]}

    async with running_agent(one_node("edit", edit), tmp_path / "s.db") as agent:
        told, kept, _ = await told_and_kept(agent)
    assert told == kept
    assert [*told["text"].values()] == ["kind words"]


async def test_a_longer_message_than_spoken_is_completed_without_a_rollback(
    tmp_path: Path,
) -> None:
    async def sign(state: MessagesState) -> dict[str, Any]:
        spoken = await say("kind words")
        return {"messages": [spoken.model_copy(update={"content": "kind words, signed"})]}

    async with running_agent(one_node("sign", sign), tmp_path / "s.db") as agent:
        told, kept, live = await told_and_kept(agent)
    assert told == kept
    assert [*told["text"].values()] == ["kind words, signed"]
    assert ROLLBACK not in [event["type"] for event in live]


async def test_replaced_and_removed_messages_stay_as_first_committed(tmp_path: Path) -> None:
    async def first(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("one", id="m1"), AIMessage("two", id="m2")]}

    async def change(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("one changed", id="m1"), RemoveMessage("m2")]}

    async def last(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("three", id="m3")]}

    graph = one_node("first", first, change, last)
    async with running_agent(graph, tmp_path / "s.db") as agent:
        told, kept, live = await told_and_kept(agent)
    assert told == kept
    assert [*told["text"].values()] == ["one", "two", "three"]
    assert ROLLBACK not in [event["type"] for event in live]


async def test_a_message_removed_in_the_step_that_spoke_it_is_taken_back(tmp_path: Path) -> None:
    async def speak(state: MessagesState) -> dict[str, Any]:
        spoken = await say("never mind")
        return {"messages": [spoken, RemoveMessage(str(spoken.id))]}

    async with running_agent(one_node("speak", speak), tmp_path / "s.db") as agent:
        told, kept, _ = await told_and_kept(agent)
    assert told == kept
    assert not told["text"]


async def test_a_nested_graph_is_told_when_the_outer_step_commits(
    tmp_path: Path, gates: Gates
) -> None:
    async def inner_one(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await say("inner one")]}

    async def inner_two(state: MessagesState) -> dict[str, Any]:
        await gates.step("inner two")
        return {"messages": [await say("inner two")]}

    inner = one_node("inner_one", inner_one, inner_two).compile()
    async with running_agent(one_node("outer", inner), tmp_path / "s.db") as agent:
        async with agent.dispatch().opened() as events:
            await gates.reached("inner two")
            gates.open("inner two")
            live = [event async for event in events]
        kept = await agent.resume().all()
    assert fold(live) == fold(kept)
    assert [*fold(live)["text"].values()] == ["inner one", "inner two"]
    assert [e["type"] for e in live].count("vystak.checkpoint") == 2


async def test_a_graph_called_inside_a_node_is_told_by_what_the_node_keeps(tmp_path: Path) -> None:
    async def inner(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await say("from inside")]}

    graph = one_node("inner", inner).compile()

    async def outer(state: MessagesState) -> dict[str, Any]:
        result = await graph.ainvoke({"messages": [HumanMessage("x")]})
        return {"messages": [AIMessage(f"it said: {result['messages'][-1].content}")]}

    async with running_agent(one_node("outer", outer), tmp_path / "s.db") as agent:
        told, kept, _ = await told_and_kept(agent)
    assert told == kept
    assert [*told["text"].values()] == ["it said: from inside"]


async def test_two_questions_of_one_node_are_answered_one_after_the_other(tmp_path: Path) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        spoken = await say("two questions")
        first = interrupt("first?")
        second = interrupt("second?")
        return {"messages": [spoken, AIMessage(f"{first} and {second}")]}

    async with running_agent(one_node("ask", ask), tmp_path / "s.db") as agent:
        told = await agent.dispatch().all()
        ids = []
        for answer in ("A", "B"):
            standing = await agent.checkpoint()
            ids += standing["interrupt_ids"]
            told += await agent.resume(
                after_checkpoint_id=standing["checkpoint_id"], decisions={ids[-1]: answer}
            ).all()
        kept = await agent.resume().all()
    assert len(set(ids)) == 2
    assert fold(told) == fold(kept)
    assert [*fold(told)["text"].values()] == ["two questions", "A and B"]


async def test_the_first_answer_is_refused_for_the_second_question(tmp_path: Path) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{interrupt('first?')} and {interrupt('second?')}")]}

    async with running_agent(one_node("ask", ask), tmp_path / "s.db") as agent:
        await agent.dispatch().all()
        first = (await agent.checkpoint())["interrupt_ids"][0]
        await agent.resume(decisions={first: "A"}).all()
        assert await agent.resume(decisions={first: "A"}).refusal() == (409, "not_pending")


async def test_questions_side_by_side_are_answered_together(tmp_path: Path) -> None:
    async def ask_a(state: MessagesState) -> dict[str, Any]:
        return {"messages": [ToolMessage(f"a {interrupt('a?')}", tool_call_id="a")]}

    async def ask_b(state: MessagesState) -> dict[str, Any]:
        return {"messages": [ToolMessage(f"b {interrupt('b?')}", tool_call_id="b")]}

    async def work(state: MessagesState) -> dict[str, Any]:
        return {"messages": [ToolMessage("worked", tool_call_id="w"), await say("I worked")]}

    graph = side_by_side(ask_a, ask_b, work)
    async with running_agent(graph, tmp_path / "s.db") as agent:
        told = await agent.dispatch().all()
        parked = await agent.resume().all()
        standing = await agent.checkpoint()
        answers = dict(zip(standing["interrupt_ids"], standing["interrupts"], strict=True))
        body = {"decisions": {key: f"re {value}" for key, value in answers.items()}}
        one = {standing["interrupt_ids"][0]: 1}
        assert await agent.resume(decisions=one).refusal() == (409, "not_pending")
        silent = agent.resume(**body)
        del silent.body["after_checkpoint_id"]
        more = await silent.all()
        kept = await agent.resume().all()
    assert fold(told) == fold(parked)
    assert fold(told)["results"] == {"w": ("worked", False)}
    assert [*fold(told)["text"].values()] == ["I worked"]
    assert fold([*told, *more]) == fold(kept)
    assert fold(kept)["results"]["a"] == ("a re a?", False)


async def test_a_speaker_interrupted_beside_a_finished_branch_is_taken_back_alone(
    tmp_path: Path, gates: Gates
) -> None:
    async def work(state: MessagesState) -> dict[str, Any]:
        return {"messages": [ToolMessage("worked", tool_call_id="w")]}

    async def ask(state: MessagesState) -> dict[str, Any]:
        spoken = await say("may I")
        await gates.step("ask")
        interrupt("ok?")
        return {"messages": [spoken]}

    async with running_agent(side_by_side(work, ask), tmp_path / "s.db") as agent:
        async with agent.dispatch().opened() as events:
            told = await until(events, type="response.output_item.added")
            gates.open("ask")
            told += [event async for event in events]
        kept = await agent.resume().all()
    assert fold(told) == fold(kept)
    assert fold(told) == {"text": {}, "calls": {}, "results": {"w": ("worked", False)}}


async def test_a_finished_branch_is_told_before_its_step_ends(tmp_path: Path, gates: Gates) -> None:
    async def quick(state: MessagesState) -> dict[str, Any]:
        return {"messages": [ToolMessage("quick", tool_call_id="q", status="error")]}

    async def slow(state: MessagesState) -> dict[str, Any]:
        await gates.step("slow")
        return {"messages": [ToolMessage("slow", tool_call_id="s")]}

    async with running_agent(side_by_side(slow, quick), tmp_path / "s.db") as agent:
        async with agent.dispatch().opened() as events:
            told = await until(events, type="response.output_item.added")
            assert told[-1]["item"]["call_id"] == "q"
            gates.open("slow")
            told += [event async for event in events]
        kept = await agent.resume().all()
    assert fold(told) == fold(kept)
    assert fold(told)["results"] == {"s": ("slow", False), "q": ("quick", True)}


async def test_a_state_that_keeps_no_message_ids_is_told_alike(tmp_path: Path) -> None:
    async def speak(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage("one"), ToolMessage("two", tool_call_id="t")]}

    graph = StateGraph(IdsLost)
    graph.add_node("speak", speak)
    graph.set_entry_point("speak")
    async with running_agent(graph, tmp_path / "s.db") as agent:
        told, kept, _ = await told_and_kept(agent)
    assert told == kept
    assert [*told["text"].values()] == ["one"]


async def test_two_speakers_side_by_side_keep_their_own_text(tmp_path: Path) -> None:
    async def left(state: MessagesState) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"messages": [await say("left says this")]}

    async def right(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await say("right says that")]}

    async with running_agent(side_by_side(left, right), tmp_path / "s.db") as agent:
        told, kept, live = await told_and_kept(agent)
    assert told == kept
    assert sorted(told["text"].values()) == ["after all", "left says this", "right says that"]
    assert ROLLBACK not in [event["type"] for event in live]
