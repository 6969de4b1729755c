"""How runs end, and what is said about it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import aiosqlite
import httpx
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send, interrupt

from tests.integration.agent.graphs import Gates, Speaker, one_node, plain_tools, side_by_side
from tests.integration.agent.harness import THREAD, eventually, fold, rest, running_agent, until


@pytest.fixture
def gates() -> Gates:
    return Gates()


async def test_the_graphs_own_error_fails_the_turn_with_its_words(tmp_path: Path) -> None:
    async def fail(state: MessagesState) -> dict[str, Any]:
        raise ValueError("no such file")

    async with running_agent(one_node("fail", fail), tmp_path / "s.db") as agent:
        live = await agent.dispatch().all()
        standing = await agent.checkpoint()
        told = await agent.resume().all()
    assert live[-2]["response"]["error"] == {"message": "ValueError: no such file"}
    assert live[-1] == {"type": "[DONE]"}
    assert (standing["error"], standing["finished"]) == ("ValueError: no such file", False)
    assert told[-2:] == live[-2:]


async def test_a_resume_of_a_failed_thread_does_not_run_the_node_again(
    tmp_path: Path, gates: Gates
) -> None:
    async def fail(state: MessagesState) -> dict[str, Any]:
        gates.begun["fail"] += 1
        raise RuntimeError

    async with running_agent(one_node("fail", fail), tmp_path / "s.db") as agent:
        await agent.dispatch().all()
        await agent.resume().all()
        plain = httpx.Request("POST", "http://x", json={"thread_id": THREAD})
        answer = await agent.http.post("/v1/_vystak/resume", content=plain.content)
    assert '"failed"' in answer.text
    assert gates.begun["fail"] == 1


async def test_a_reducer_that_raises_fails_the_turn(tmp_path: Path) -> None:
    async def speak(state: MessagesState) -> dict[str, Any]:
        return {"messages": [object()]}

    async with running_agent(one_node("speak", speak), tmp_path / "s.db") as agent:
        live = await agent.dispatch().all()
    assert live[-2]["type"] == "response.failed"


async def test_an_endless_graph_fails_the_turn(tmp_path: Path) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("loop", lambda state: {"messages": [AIMessage("again")]})
    graph.set_entry_point("loop")
    graph.add_edge("loop", "loop")
    compiled = graph.compile().with_config(recursion_limit=5)
    async with running_agent(compiled, tmp_path / "s.db") as agent:
        live = await agent.dispatch().all()
    assert "GraphRecursionError" in live[-2]["response"]["error"]["message"]


async def test_a_failing_checkpointer_is_never_the_graphs_failure(
    tmp_path: Path, gates: Gates
) -> None:
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        async with agent.dispatch().opened() as events:
            await gates.reached("ask")
            async with aiosqlite.connect(tmp_path / "s.db") as connection:
                await connection.execute("DROP TABLE writes")
                await connection.commit()
            gates.open("ask", "look", "answer")
            with pytest.raises(httpx.RemoteProtocolError):
                await rest(events)
        assert agent.agent
        async with asyncio.timeout(10):
            await agent.agent.ready().none_left()


async def test_a_node_that_cancels_itself_fails_the_turn(tmp_path: Path) -> None:
    async def give_up(state: MessagesState) -> dict[str, Any]:
        raise asyncio.CancelledError

    async with running_agent(one_node("give_up", give_up), tmp_path / "s.db") as agent:
        live = await agent.dispatch().all()
        standing = await agent.checkpoint()
    assert live[-2]["response"]["error"]["message"].startswith("NodeCancelledError")
    assert standing["error"] == live[-2]["response"]["error"]["message"]


async def test_our_own_cancellation_is_never_the_graphs_error(tmp_path: Path, gates: Gates) -> None:
    gates.open("ask", "look")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        async with agent.dispatch().opened() as events:
            await gates.reached("answer")
            (task,) = [one for one in asyncio.all_tasks() if one.get_name() == f"run {THREAD}"]
            task.cancel()
            with pytest.raises(httpx.RemoteProtocolError):
                await rest(events)
        standing = await agent.idle()
        gates.open("answer")
        last = await agent.resume().all()
    assert (standing["error"], standing["finished"]) == (None, False)
    assert last[-2]["type"] == "response.completed"
    assert gates.begun == {"ask": 1, "look": 1, "answer": 2}


async def test_a_new_turn_over_parked_sends_does_not_run_them(tmp_path: Path, gates: Gates) -> None:
    def fan_out(state: MessagesState) -> Any:
        if state["messages"][-1].content == "second":
            return "answer"
        return [Send("work", {"messages": [HumanMessage(name)]}) for name in ("one", "two")]

    async def work(state: MessagesState) -> dict[str, Any]:
        name = str(state["messages"][-1].content)
        gates.begun[name] += 1
        interrupt(name)
        return {"messages": [AIMessage(name)]}

    graph = StateGraph(MessagesState)
    graph.add_node("work", work)
    graph.add_node("answer", lambda state: {"messages": [AIMessage("answered")]})
    graph.add_conditional_edges(START, fan_out, ["work", "answer"])
    async with running_agent(graph, tmp_path / "s.db") as agent:
        await agent.dispatch(input="first").all()
        parked = await agent.checkpoint()
        told = await agent.dispatch(input="second", turn_id="t2", epoch=2).all()
    assert sorted(parked["interrupts"]) == ["one", "two"]
    assert [*fold(told)["text"].values()] == ["answered"]
    assert told[-2]["type"] == "response.completed"
    assert gates.begun == {"one": 1, "two": 1}


async def test_a_failing_branch_waits_for_the_thread_of_its_neighbour(
    tmp_path: Path, gates: Gates
) -> None:
    working, may_end = threading.Event(), threading.Event()
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(state: MessagesState) -> dict[str, Any]:
        working.set()
        loop.call_soon_threadsafe(began.set)
        may_end.wait(10)
        working.clear()
        return {"messages": [ToolMessage("late", tool_call_id="late")]}

    async def fail(state: MessagesState) -> dict[str, Any]:
        await began.wait()
        raise ValueError("beside")

    async with running_agent(side_by_side(work, fail), tmp_path / "s.db") as agent:
        async with agent.dispatch().opened() as events:
            await until(events, type="vystak.checkpoint")
            await began.wait()
            for _ in range(20):  # the failure has long happened, the thread still works
                assert (await agent.checkpoint())["active"]
            assert await agent.dispatch(turn_id="t2", epoch=2).refusal() == (409, "busy")
            may_end.set()
            last = [event async for event in events]
        assert not working.is_set()
        assert (await agent.checkpoint())["active"] is False
    assert last[-2]["type"] == "response.failed"


async def test_a_new_turn_over_a_parked_one_starts_clean(tmp_path: Path, gates: Gates) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        text = state["messages"][-1].content
        gates.begun[str(text)] += 1
        return {"messages": [AIMessage(f"{interrupt('ok?')} {text}")]}

    async with running_agent(one_node("ask", ask), tmp_path / "s.db") as agent:
        await agent.dispatch(input="first").all()
        first = (await agent.checkpoint())["interrupt_ids"]
        await agent.dispatch(input="second", turn_id="t2", epoch=2).all()
        second = await agent.checkpoint()
        ours = {"turn_id": "t2", "epoch": 2}
        stale = agent.resume(decisions={first[0]: "yes"}, **ours)
        assert await stale.refusal() == (409, "not_pending")
        told = await agent.resume(decisions={second["interrupt_ids"][0]: "yes"}, **ours).all()
    assert second["turn_id"] == "t2"
    assert [*fold(told)["text"].values()] == ["yes second"]


async def test_calls_left_open_are_closed_before_the_new_message_and_never_told(
    tmp_path: Path, gates: Gates
) -> None:
    seen: list[list[str]] = []

    async def ask(state: MessagesState) -> dict[str, Any]:
        seen.append([f"{m.type}:{getattr(m, 'tool_call_id', '')}" for m in state["messages"]])
        if len(seen) > 1:
            return {"messages": [AIMessage("fine")]}
        return {"messages": [await Speaker(text="both", calls=("a", "b")).ainvoke("")]}

    async def tools(state: MessagesState) -> dict[str, Any]:
        if len(seen) == 1:
            interrupt("ok?")
        return {}

    async with running_agent(one_node("ask", ask, tools), tmp_path / "s.db") as agent:
        await agent.dispatch().all()
        live = await agent.dispatch(turn_id="t2", epoch=2).all()
        kept = await agent.resume(turn_id="t2", epoch=2).all()
    assert seen[1] == ["human:", "ai:", "tool:call-a", "tool:call-b", "human:"]
    assert fold(live) == fold(kept)
    assert fold(live)["results"] == {}


async def test_the_callers_fields_reach_the_graph_also_after_a_resume(tmp_path: Path) -> None:
    async def who(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        answer = interrupt("ok?")
        given = config["configurable"]
        return {"messages": [AIMessage(f"{given['user_id']} {given['tags']} {answer}")]}

    async with running_agent(one_node("who", who), tmp_path / "s.db") as agent:
        await agent.dispatch(user_id="ann", tags=["x"], checkpoint_id="evil", thread_id="no").all()
        key = (await agent.checkpoint())["interrupt_ids"][0]
        told = await agent.resume(decisions={key: "yes"}).all()
        standing = await agent.checkpoint()
    assert [*fold(told)["text"].values()] == ["ann ['x'] yes"]
    assert standing["turn_id"] == "turn-1"


async def test_an_input_that_was_stored_but_not_begun_is_applied_once(
    tmp_path: Path, gates: Gates
) -> None:
    gates.open("ask", "look", "answer")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        await agent.dispatch().all()
        await agent.dispatch(turn_id="t2", epoch=2).all()
    await _keep_only_the_input_of("t2", tmp_path / "s.db")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        standing = await agent.checkpoint()
        assert await agent.dispatch(turn_id="t2", epoch=3).refusal() == (409, "not_pending")
        live = await agent.resume(turn_id="t2", epoch=3).all()
        kept = await agent.resume(turn_id="t2", epoch=3).all()
    assert (standing["turn_id"], standing["finished"]) == ("t2", False)
    assert fold(live) == fold(kept)
    assert [*fold(live)["text"].values()] == ["let me look", "all is done"]


async def _keep_only_the_input_of(turn_id: str, path: Path) -> None:
    """Make the file as a kill between the input's checkpoint and the next one leaves it."""
    own = "json_extract(CAST(metadata AS TEXT), '$.turn_id') = ?"
    source = "json_extract(CAST(metadata AS TEXT), '$.source')"
    async with aiosqlite.connect(path) as connection:
        await connection.execute(
            f"DELETE FROM checkpoints WHERE {own} AND {source} <> 'input'", [turn_id]
        )
        await connection.execute(
            "DELETE FROM writes WHERE checkpoint_id NOT IN (SELECT checkpoint_id FROM checkpoints) "
            f"OR checkpoint_id IN (SELECT checkpoint_id FROM checkpoints WHERE {own})",
            [turn_id],
        )
        await connection.commit()


async def test_a_reader_too_slow_is_cut_off_and_the_run_goes_on(
    tmp_path: Path, gates: Gates
) -> None:
    async def speak(state: MessagesState) -> dict[str, Any]:
        await gates.step("speak")
        return {"messages": [await Speaker(text="word " * 200 + "end").ainvoke("")]}

    async with running_agent(
        one_node("speak", speak), tmp_path / "s.db", reader_max_events=20
    ) as agent:
        async with agent.dispatch().opened() as events:
            await gates.reached("speak")
            gates.open("speak")
            with pytest.raises(httpx.RemoteProtocolError):
                await rest(events)
        standing = await agent.idle()
    assert standing["finished"]


async def test_a_catch_up_longer_than_the_queue_reaches_a_reader_that_reads(
    tmp_path: Path,
) -> None:
    def many(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"m{number}") for number in range(200)]}

    async with running_agent(
        one_node("many", many), tmp_path / "s.db", reader_max_events=20
    ) as agent:
        agent_answer = await agent.http.post("/v1/responses", json={"input": "x"})
        thread = agent_answer.json()["id"]
        turn = (await agent.checkpoint(thread))["turn_id"]
        told = await agent.resume(thread_id=thread, turn_id=turn).all()
    assert len(fold(told)["text"]) == 200
    assert told[-1] == {"type": "[DONE]"}


async def test_a_quiet_stream_carries_a_comment_line(tmp_path: Path, gates: Gates) -> None:
    async with running_agent(plain_tools(gates), tmp_path / "s.db", heartbeat_s=0.02) as agent:
        stream = agent.dispatch()
        async with agent.http.stream("POST", stream.path, json=stream.body) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            comments = 0
            async with asyncio.timeout(10):
                async for line in answer.aiter_lines():
                    comments += line.startswith(":")
                    if comments == 3:
                        break
        gates.open("ask", "look", "answer")
        await agent.idle()


async def test_a_lost_reader_is_noticed_during_a_quiet_step(tmp_path: Path, gates: Gates) -> None:
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        async with agent.dispatch().opened() as events:
            await until(events, type="vystak.checkpoint")
        assert agent.agent
        (run,) = agent.agent.ready()._active
        async with asyncio.timeout(10):
            await run.channel.gone()
        gates.open("ask", "look", "answer")
        assert (await agent.idle())["finished"]


async def test_a_file_that_cannot_be_used_is_told_in_words_and_tried_again(
    tmp_path: Path, gates: Gates
) -> None:
    gates.open("ask", "look", "answer")
    path = tmp_path / "s.db"
    path.mkdir()
    async with running_agent(plain_tools(gates), path, healthy=False, file_retry_s=0.01) as agent:
        await agent.health(503)
        answer = await eventually(
            lambda: agent.http.get("/healthz"), lambda answer: "cannot use" in answer.text
        )
        path.rmdir()
        await agent.health(200)
        assert (await agent.dispatch().all())[-1] == {"type": "[DONE]"}
    assert str(path) in answer.json()["error"]
