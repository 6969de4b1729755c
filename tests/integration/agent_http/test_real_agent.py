"""Against the agent package itself: real HTTP, real LangGraph, real SQLite."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, TypeAlias

import pytest

from tests.integration.agent.graphs import Gates, asking, plain_tools
from tests.integration.agent.harness import running_agent
from vystak_turns.adapters.agent_http.agent import AgentTimes
from vystak_turns.core.facts import Refusal, StreamEnd
from vystak_turns.core.turn import Decision
from vystak_turns.ports import (
    AgentEvent,
    CallRefusedError,
    DispatchCall,
    Ended,
    Marker,
    ResumeCall,
    RolledBack,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from vystak_turns.adapters.agent_http.agent import HttpAgent
    from vystak_turns.ports import RunCall, StreamItem

    AgentAt: TypeAlias = Callable[..., HttpAgent]

THREAD = "resp_0123456789abcdef01234567"
DISPATCH = DispatchCall("t1", THREAD, 5, {"input": "do it", "model": "", "user_id": "u"})
WAIT_S = 20


def resume(**fields: object) -> ResumeCall:
    given = {"epoch": 5, "catch_up": True, "after_checkpoint_id": None, "decisions": ()}
    return ResumeCall("t1", THREAD, **{**given, **fields})  # type: ignore[arg-type]


async def all_items(agent: HttpAgent, call: RunCall) -> list[StreamItem]:
    async with asyncio.timeout(WAIT_S), agent.run(call) as items:
        return [item async for item in items]


def types(items: list[StreamItem]) -> list[str]:
    return [item.type for item in items if isinstance(item, AgentEvent)]


async def refusal_of(agent: HttpAgent, call: RunCall) -> Refusal:
    with pytest.raises(CallRefusedError) as refused:
        await all_items(agent, call)
    return refused.value.refusal


async def test_a_turn_runs_to_its_end_and_is_then_seen_finished(
    agent_at: AgentAt, tmp_path: Path
) -> None:
    gates = Gates()
    gates.open("ask", "look", "answer")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as served:
        agent = agent_at(str(served.http.base_url), AgentTimes())
        assert await agent.healthy()
        unseen = await agent.view(THREAD, "t1")

        items = await all_items(agent, DISPATCH)

        view, others = await agent.view(THREAD, "t1"), await agent.view(THREAD, "t0")
        again = await all_items(agent, resume())

    assert (unseen.checkpoint_id, unseen.stamped, unseen.finished) == (None, False, False)
    assert types(items)[0] == "response.created"
    assert types(items)[-1] == "response.completed"
    assert sum(isinstance(item, Marker) for item in items) >= 3
    assert (view.stamped, view.finished, view.active, view.error) == (True, True, False, None)
    assert view.epoch == 5
    assert not others.stamped
    assert types(again)[-1] == "response.completed"
    assert isinstance(items[-1], AgentEvent)
    response = json.loads(items[-1].json)["response"]
    assert "all is done" in json.dumps(response)


async def test_a_parked_turn_ends_cleanly_and_takes_its_decision_by_map(
    agent_at: AgentAt, tmp_path: Path
) -> None:
    async with running_agent(asking(Gates()), tmp_path / "s.db") as served:
        agent = agent_at(str(served.http.base_url), AgentTimes())

        items = await all_items(agent, DISPATCH)

        view = await agent.view(THREAD, "t1")
        (question,) = view.questions
        wrong = resume(catch_up=False, decisions=(Decision("other", 1),))
        refusal = await refusal_of(agent, wrong)
        right = resume(catch_up=False, decisions=(Decision(question.interrupt_id, "yes"),))
        rest = await all_items(agent, right)

    assert items[-1] == Ended(StreamEnd.CLEAN)
    assert any(isinstance(item, RolledBack) for item in items)
    assert question.payload == {"question": "may I"}
    assert not view.finished
    assert refusal is Refusal.NOT_PENDING
    assert types(rest)[-1] == "response.completed"
    assert "you said yes" in str(rest)


async def test_refusals_of_the_agent_are_understood(agent_at: AgentAt, tmp_path: Path) -> None:
    gates = Gates()
    gates.open("ask")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as served:
        agent = agent_at(str(served.http.base_url), AgentTimes())
        other = DispatchCall("t2", THREAD, 6, {"input": "x"})
        bad = DispatchCall("t3", "resp_other", 1, {"input": []})
        assert await refusal_of(agent, resume()) is Refusal.UNKNOWN_THREAD
        assert await refusal_of(agent, bad) is Refusal.WRONG
        async with asyncio.timeout(WAIT_S), agent.run(DISPATCH) as items:
            await gates.reached("look")
            assert (await agent.view(THREAD, "t1")).active
            assert await refusal_of(agent, other) is Refusal.BUSY
            assert await refusal_of(agent, resume(epoch=4)) is Refusal.STALE_EPOCH
            gates.open("look", "answer")
            assert await _last(items) is not None
        unknown = resume(epoch=6, after_checkpoint_id="1f000000-0000-6000-8000-000000000000")
        assert await refusal_of(agent, unknown) is Refusal.UNKNOWN_CHECKPOINT
        assert await refusal_of(agent, resume(epoch=1)) is Refusal.STALE_EPOCH


async def test_a_drained_run_says_so_and_goes_on_where_it_was(
    agent_at: AgentAt, tmp_path: Path
) -> None:
    gates = Gates()
    gates.open("ask", "answer")
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as served:
        agent = agent_at(str(served.http.base_url), AgentTimes())
        async with asyncio.timeout(WAIT_S), agent.run(DISPATCH) as items:
            await gates.reached("look")
            await agent.drain(THREAD, "t1", 6)
            gates.open("look")
            last = await _last(items)
        view = await agent.view(THREAD, "t1")
        rest = await all_items(agent, resume(epoch=7))

    assert last == Ended(StreamEnd.DRAINED)
    assert (view.active, view.finished) == (False, False)
    assert types(rest)[-1] == "response.completed"
    assert gates.begun == {"ask": 1, "look": 1, "answer": 1}


async def _last(items: AsyncIterator[StreamItem]) -> StreamItem | None:
    last = None
    async for item in items:
        last = item
    return last
