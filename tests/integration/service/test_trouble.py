"""Trouble that passes ends no turn: agents that refuse, break off and fall silent, slow brokers."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from tests.integration.agent_http.raw import CHUNKED, LAST_CHUNK, Connection, reply
from tests.support.caller import QUICK, Caller, connected, types
from tests.support.checkers import check_no_end, check_one_end, check_sequence
from tests.support.running_service import AGENT, running_service
from tests.support.scripted_agent import (
    COMPLETED,
    CREATED,
    THREAD,
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

    from tests.support.nats_server import NatsServer
    from tests.support.running_service import RunningService
    from tests.support.scripted_agent import ScriptedAgent

pytestmark = pytest.mark.broker

BROKER_ANSWER_S = 0.2
FINISHED: dict[str, Any] = {
    "checkpoint_id": "ck2",
    "interrupted": False,
    "interrupts": [],
    "interrupt_ids": [],
    "epoch": None,
    "active": False,
    "finished": True,
    "error": None,
}


@pytest.fixture
async def agent() -> AsyncIterator[ScriptedAgent]:
    async with scripted_agent() as agent:
        yield agent


@asynccontextmanager
async def serving(
    folder: Path, server: NatsServer, agent: ScriptedAgent, **more: Any
) -> AsyncIterator[tuple[RunningService, Caller]]:
    """A service and its caller, whose connection goes on when the broker comes back."""
    options = {**QUICK, "broker_answer_s": BROKER_ANSWER_S, **more}
    agents = {AGENT: agent.raw.url}
    async with running_service(folder, server.url, agents=agents, **options) as service:
        await service.until_ready()
        client = await connected(server.url)
        try:
            yield service, Caller(client)
        finally:
            await client.close()


async def until_waiting_for_broker(service: RunningService) -> None:
    """Ask over HTTP, which needs no broker."""
    async for _ in ticks("it waits for the broker"):
        status = (await service.call("responses/turnStatus", {"turn_id": "t1"}))["result"]
        if status["waiting_for"] == "broker":
            assert status["status"] == "running"
            break


async def test_w1_a_connection_that_breaks_ends_nothing_and_the_turn_goes_on(
    tmp_path: Path, nats_server: NatsServer, agent: ScriptedAgent
) -> None:
    agent.calls = [
        agent.breaks_off(CREATED, word("a"), word("l"), leaves=stands_at("ck1")),
        agent.tells(CREATED, word("all"), COMPLETED),
    ]
    async with serving(tmp_path, nats_server, agent) as (_, caller):
        await caller.create("t1")
        await caller.until("t1", "done")

        log = await caller.log("t1")
    check_one_end(log, "response.completed")
    check_sequence(log)
    assert len(agent.runs) == 2


async def test_w54_a_redrive_is_in_the_log_with_its_turn_and_its_count(
    tmp_path: Path, nats_server: NatsServer, agent: ScriptedAgent
) -> None:
    agent.calls = [
        agent.breaks_off(CREATED, word("a"), leaves=stands_at("ck1")),
        agent.tells(CREATED, word("all"), COMPLETED),
    ]
    with capture_logs() as lines:
        async with serving(tmp_path, nats_server, agent) as (_, caller):
            await caller.create("t1")
            await caller.until("t1", "done")

    of_turn = [line for line in lines if line.get("turn_id") == "t1"]
    assert {line["log_level"] for line in of_turn} == {"info"}
    redriven = [line for line in of_turn if line.get("attempts") == 1]
    assert redriven[0]["fact"] == "Probed"
    assert [line["to_seq"] for line in of_turn if line["event"] == "rewound"] == [-1]


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_r1_an_agent_that_answers_with_an_error_of_its_own_is_asked_again(
    tmp_path: Path, nats_server: NatsServer, agent: ScriptedAgent, status: int
) -> None:
    agent.calls = [reply(status), reply(status), agent.tells(CREATED, COMPLETED)]
    async with serving(tmp_path, nats_server, agent) as (_, caller):
        await caller.create("t1")
        ended = await caller.until("t1", "done")

        log = await caller.log("t1")
    check_one_end(log, "response.completed")
    assert len(agent.runs) == 3
    assert ended["attempts"] == 0, "a refused call costs nothing"


async def test_w49_an_agent_that_is_unhealthy_for_long_is_waited_for_and_the_status_says_so(
    tmp_path: Path, nats_server: NatsServer, agent: ScriptedAgent
) -> None:
    agent.health = 503
    agent.calls = [reply(503), agent.tells(CREATED, COMPLETED)]
    async with serving(tmp_path, nats_server, agent) as (_, caller):
        before = agent.asked("/healthz")
        await caller.create("t1")
        await until(lambda: agent.asked("/healthz") > before + 20, "its health is asked for")
        waiting = await caller.status("t1")
        agent.health = 200
        await caller.until("t1", "done")

    assert (waiting["status"], waiting["waiting_for"]) == ("running", "agent")
    assert (waiting["attempts"], len(agent.runs)) == (0, 2)


async def test_w8_a_silent_step_is_no_failure_and_is_not_run_beside(
    tmp_path: Path, nats_server: NatsServer, agent: ScriptedAgent
) -> None:
    """The limit of silence passes, the agent says that its run is active: it is let finish."""
    active = stands_at("ck1", interrupt_ids=[], active=True, finished=False, epoch=None)

    async def silent(connection: Connection) -> None:
        await connection.send(CHUNKED)
        await connection.chunks(frame(CREATED), frame(word("a")), frame(marker("ck1")))
        agent.view = {**active, "turn_id": "t1", "turns": ["t1"], "error": None}
        await connection.left()

    agent.calls = [silent, agent.tells(CREATED, word("ll"), marker("ck2"), COMPLETED)]
    async with serving(tmp_path, nats_server, agent, agent_gap_s=0.2) as (_, caller):
        await caller.create("t1")
        await until(lambda: agent.asked("/v1/_vystak/drain") > 3, "it is asked to stop")
        meanwhile, log = await caller.status("t1"), await caller.log("t1")
        runs = len(agent.runs)
        agent.view = {**FINISHED, "turn_id": "t1", "turns": ["t1"]}
        await caller.until("t1", "done")
        after = await caller.log("t1")

    assert (meanwhile["status"], meanwhile["waiting_for"]) == ("running", "step")
    assert (meanwhile["attempts"], runs) == (0, 1)
    check_no_end(log)
    check_one_end(after, "response.completed")
    check_sequence(after)


async def test_w6_a_slow_acknowledgement_leaves_the_agents_stream_open(
    tmp_path: Path, nats_server: NatsServer, agent: ScriptedAgent
) -> None:
    words = [word(letter) for letter in "abcdefgh"]
    go_on, told = asyncio.Event(), asyncio.Event()

    async def answer(connection: Connection) -> None:
        await connection.send(CHUNKED)
        await connection.chunks(frame(CREATED), *map(frame, words[:4]))
        await go_on.wait()
        await connection.chunks(*map(frame, words[4:]), frame(COMPLETED))
        told.set()
        await connection.send(LAST_CHUNK)

    agent.calls = [answer]
    async with serving(tmp_path, nats_server, agent) as (service, caller):
        await caller.create("t1")
        async for _ in ticks("half of it is logged"):
            if len(await caller.log("t1")) == 5:
                break
        os.kill(nats_server.pid, signal.SIGSTOP)
        go_on.set()
        await told.wait()
        await until_waiting_for_broker(service)
        os.kill(nats_server.pid, signal.SIGCONT)
        await caller.until("t1", "done")
        log = await caller.log("t1")

    assert [m.event for m in log] == [CREATED, *words, COMPLETED]
    check_sequence(log)
    assert len(agent.runs) == 1


async def test_r9_a_stream_that_cannot_be_had_is_waited_for_and_fails_nothing(
    tmp_path: Path, nats_server: NatsServer, agent: ScriptedAgent
) -> None:
    agent.calls = [agent.tells(CREATED, word("all"), COMPLETED)]
    async with serving(tmp_path, nats_server, agent) as (service, caller):
        await nats_server.kill()
        create = {
            "turn_id": "t1",
            "stream_subject": "vystak.default.streams.c1.t1",
            "request": {"input": "Go."},
        }
        answer = await service.call("responses/createDetached", create)
        await until(lambda: len(agent.runs) == 1, "the agent is asked although no log can be had")
        status = await service.call("responses/turnStatus", {"turn_id": "t1"})
        await nats_server.start()
        await caller.until("t1", "done")
        log = await caller.log("t1")

    assert "result" in answer
    assert status["result"]["status"] == "running"
    assert types(log) == ["created", "output_text.delta", "completed"]
    check_sequence(log)


async def test_w5_a_turn_that_reaches_its_cap_while_the_broker_is_away_fails_once(
    tmp_path: Path, nats_server: NatsServer, agent: ScriptedAgent
) -> None:
    killed = asyncio.Event()

    async def last(connection: Connection) -> None:
        await connection.send(CHUNKED)
        await nats_server.kill()
        killed.set()

    agent.calls = [agent.breaks_off(CREATED, word("a"), leaves=stands_at("ck1")), last]
    capped = {"max_redrive_attempts": 1}
    async with serving(tmp_path, nats_server, agent, **capped) as (service, caller):
        await caller.create("t1", previous_response_id=THREAD)
        await killed.wait()
        await until_waiting_for_broker(service)
    await nats_server.start()
    async with serving(tmp_path, nats_server, agent, **capped) as (_, caller):
        ended = await caller.until("t1", "failed")
        log = await caller.log("t1")
    async with serving(tmp_path, nats_server, agent, **capped) as (_, caller):
        assert await caller.log("t1") == log

    assert ended["error"]["code"] == "attempts_exhausted"
    check_one_end(log, "response.failed")
    check_sequence(log)
    assert len(agent.runs) == 2
