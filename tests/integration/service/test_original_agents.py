"""Turns of an agent that knows nothing of us: the wire's acceptance items, end to end over NATS."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.agent_http.raw import CHUNKED, LAST_CHUNK, Connection, reply
from tests.support.caller import QUICK, Caller, boundaries_in, types
from tests.support.checkers import check_no_end, check_one_end, check_sequence
from tests.support.running_service import AGENT, STREAM, running_service
from tests.support.scripted_agent import (
    COMPLETED,
    CREATED,
    FAILED,
    THREAD,
    UNSEEN,
    frame,
    marker,
    scripted_agent,
    stands_at,
    word,
)
from tests.support.waiting import ticks, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from tests.support.nats_server import NatsServer
    from tests.support.scripted_agent import ScriptedAgent

pytestmark = pytest.mark.broker

QUESTION = {"kind": "tool_approval", "tool": "rm", "args": {}, "skill": "files"}
ASKING = stands_at("ck1", interrupts=[QUESTION])


@pytest.fixture
async def agent() -> AsyncIterator[ScriptedAgent]:
    async with scripted_agent() as agent:
        yield agent


@pytest.fixture
async def caller(
    tmp_path: Path, nats_server: NatsServer, nc: Client, agent: ScriptedAgent
) -> AsyncIterator[Caller]:
    """A caller of a service whose agent is `agent`."""
    async with serving(tmp_path, nats_server, agent):
        yield Caller(nc)


@asynccontextmanager
async def serving(
    folder: Path, server: NatsServer, agent: ScriptedAgent, **more: Any
) -> AsyncIterator[None]:
    agents = {AGENT: agent.raw.url}
    async with running_service(folder, server.url, agents=agents, **{**QUICK, **more}) as service:
        await service.until_ready()
        yield


async def test_a_turn_is_acknowledged_with_both_ids_and_then_logged_from_seq_0_in_the_stream(
    caller: Caller, agent: ScriptedAgent
) -> None:
    acknowledged = asyncio.Event()

    async def answer(connection: Connection) -> None:
        await acknowledged.wait()
        await agent.tells(CREATED, word("al"), word("l"), COMPLETED)(connection)

    agent.calls = [answer]

    ack = await caller.create("t1")
    acknowledged.set()

    assert ack == {"turn_id": "t1", "stream_subject": "vystak.default.streams.c1.t1"}
    await caller.until("t1", "done")
    log = await caller.log("t1")
    assert [message.seq for message in log] == [0, 1, 2, 3]
    assert [message.event for message in log] == [CREATED, word("al"), word("l"), COMPLETED]
    info = await caller.nc.jetstream().stream_info(STREAM)
    assert info.config.subjects == ["vystak.default.streams.>"]


async def test_a_marker_is_not_published_and_records_the_seq_before_it(
    caller: Caller, agent: ScriptedAgent, tmp_path: Path
) -> None:
    agent.calls = [
        agent.tells(
            CREATED, word("a"), marker("ck1"), word("l"), word("l"), marker("ck2"), COMPLETED
        )
    ]

    await caller.create("t1")
    await caller.until("t1", "done")

    log = await caller.log("t1")
    check_sequence(log)
    assert "checkpoint" not in types(log)
    assert boundaries_in(tmp_path / "turns.db") == [("ck1", 1), ("ck2", 3)]


async def test_a_failure_of_the_agent_ends_the_turn_as_failed(
    caller: Caller, agent: ScriptedAgent
) -> None:
    agent.calls = [agent.tells(CREATED, word("a"), FAILED)]

    await caller.create("t1")
    status = await caller.until("t1", "failed")

    assert status["error"]["message"] == "no such file"
    check_one_end(await caller.log("t1"), "response.failed")
    assert len(agent.runs) == 1


@pytest.mark.parametrize(
    ("told", "to_seq", "created"),
    [([], -1, [0, 3]), ([marker("ck1")], 1, [0])],
    ids=["from the start", "from a boundary"],
)
async def test_created_comes_again_only_where_the_first_one_was_taken_back(
    caller: Caller, agent: ScriptedAgent, told: list[Any], to_seq: int, created: list[int]
) -> None:
    agent.calls = [
        agent.breaks_off(CREATED, word("a"), *told, leaves=stands_at("ck1")),
        agent.tells(CREATED, word("ll"), COMPLETED),
    ]

    await caller.create("t1")
    await caller.until("t1", "done")

    log = await caller.log("t1")
    check_one_end(log, "response.completed")
    check_sequence(log)
    assert log[2].event == {"type": "vystak.turn.rewind", "to_seq": to_seq}
    assert [m.seq for m in log if m.type == "response.created"] == created


async def test_a_thread_is_asked_about_by_get_and_continued_by_post_without_a_resume_value(
    caller: Caller, agent: ScriptedAgent
) -> None:
    agent.calls = [
        agent.breaks_off(CREATED, word("a"), marker("ck1"), leaves=stands_at("ck1")),
        agent.tells(CREATED, COMPLETED),
    ]

    await caller.create("t1", previous_response_id=THREAD)
    await caller.until("t1", "done")

    views = [r for r in agent.raw.requests if r.target.startswith("/v1/_vystak/checkpoint")]
    assert {(view.method, view.target.partition("?")[2]) for view in views} == {
        ("GET", f"thread_id={THREAD}")
    }
    _, again = agent.runs
    assert (again.method, again.target) == ("POST", "/v1/_vystak/resume")
    assert again.json["thread_id"] == THREAD
    assert "resume" not in again.json


async def test_a_park_asks_once_and_a_decision_goes_on_without_a_rewind(
    caller: Caller, agent: ScriptedAgent
) -> None:
    decision = {"approved": True, "decided_by": "ann", "note": None}
    agent.calls = [
        agent.tells(CREATED, word("may I?"), marker("ck1"), leaves=ASKING),
        agent.tells(CREATED, word("done"), COMPLETED),
    ]

    await caller.create("t1", previous_response_id=THREAD)
    parked = await caller.until("t1", "parked")
    before = await caller.log("t1")
    accepted = await caller.call("responses/resumeDetached", turn_id="t1", resume=decision)
    await caller.until("t1", "done")

    assert parked["interrupt"] == QUESTION
    assert types(before) == ["created", "output_text.delta", "approval.requested"]
    assert before[-1].event["payload"] == QUESTION
    check_no_end(before)
    assert accepted["result"] == {"turn_id": "t1"}
    assert (agent.runs[1].json["thread_id"], agent.runs[1].json["resume"]) == (THREAD, decision)
    log = await caller.log("t1")
    assert types(log[3:]) == ["output_text.delta", "completed"]
    check_sequence(log)


async def test_an_agent_that_cannot_name_its_questions_still_parks(
    caller: Caller, agent: ScriptedAgent
) -> None:
    view = {"checkpoint_id": "ck1", "interrupted": True}
    agent.calls = [agent.tells(CREATED, word("may I?"), marker("ck1"), leaves=view)]

    await caller.create("t1")

    assert (await caller.until("t1", "parked"))["interrupt"] is None
    check_no_end(await caller.log("t1"))


async def test_w22_a_stream_that_ends_in_the_middle_of_a_step_is_gone_on_with_and_does_not_park(
    caller: Caller, agent: ScriptedAgent
) -> None:
    agent.calls = [
        agent.tells(CREATED, word("a"), marker("ck1"), leaves=stands_at("ck1")),
        agent.tells(CREATED, word("ll"), COMPLETED),
    ]

    await caller.create("t1")
    await caller.until("t1", "done")

    log = await caller.log("t1")
    assert "approval.requested" not in types(log)
    check_one_end(log, "response.completed")


async def test_w25_while_the_agent_cannot_say_where_a_thread_stands_nothing_is_spent_or_published(
    caller: Caller, agent: ScriptedAgent
) -> None:
    agent.view = reply(500)
    agent.calls = [
        agent.tells(CREATED, word("a"), marker("ck1")),
        agent.tells(CREATED, word("ll"), COMPLETED),
    ]

    await caller.create("t1")
    await until(lambda: agent.asked("/v1/_vystak/checkpoint") > 10, "it is asked again and again")
    meanwhile, log = await caller.status("t1"), await caller.log("t1")
    agent.view = stands_at("ck1")
    await caller.until("t1", "done")

    assert (meanwhile["status"], meanwhile["attempts"]) == ("running", 0)
    assert types(log) == ["created", "output_text.delta"]
    check_one_end(await caller.log("t1"), "response.completed")


@pytest.mark.parametrize("shown", [[], [CREATED, word("a")]], ids=["nothing", "something"])
async def test_w21_a_turn_whose_thread_holds_nothing_of_it_is_dispatched_again(
    caller: Caller, agent: ScriptedAgent, shown: list[Any]
) -> None:
    agent.calls = [
        agent.breaks_off(*shown, leaves=UNSEEN),
        agent.tells(CREATED, word("all"), COMPLETED),
    ]

    await caller.create("t1")
    await caller.until("t1", "done")

    first, second = agent.runs
    assert (first.target, second.target) == ("/v1/responses", "/v1/responses")
    assert second.json["input"] == first.json["input"] == "Go."
    assert second.json["previous_response_id"] == first.json["previous_response_id"]
    log = await caller.log("t1")
    check_one_end(log, "response.completed")
    check_sequence(log)


async def test_w33_a_parked_turn_answers_from_the_journal_while_its_agent_hangs(
    caller: Caller, agent: ScriptedAgent
) -> None:
    agent.calls = [agent.tells(CREATED, word("may I?"), marker("ck1"), leaves=ASKING)]
    await caller.create("t1")
    await caller.until("t1", "parked")
    asked = agent.asked("/v1/_vystak/checkpoint")

    async def hang(connection: Connection) -> None:
        await connection.left()

    agent.view, agent.health = hang, 503
    async with asyncio.timeout(5):
        status = await caller.status("t1")

    assert (status["status"], status["interrupt"]) == ("parked", QUESTION)
    assert agent.asked("/v1/_vystak/checkpoint") == asked


async def test_a_turn_that_runs_has_no_question_and_takes_no_decision(
    caller: Caller, agent: ScriptedAgent
) -> None:
    go_on = asyncio.Event()

    async def answer(connection: Connection) -> None:
        await connection.send(CHUNKED)
        await connection.chunks(frame(CREATED))
        await go_on.wait()
        await connection.chunks(frame(COMPLETED))
        await connection.send(LAST_CHUNK)

    agent.calls = [answer]
    await caller.create("t1")
    async for _ in ticks("it runs"):
        if await caller.log("t1"):
            break

    status = await caller.status("t1")
    refused = await caller.call("responses/resumeDetached", turn_id="t1", resume="yes")
    go_on.set()
    await caller.until("t1", "done")

    assert (status["status"], status["interrupt"]) == ("running", None)
    assert refused["error"]["code"] == -32602
    assert "not parked" in refused["error"]["message"]
    assert len(agent.runs) == 1
