from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiosqlite
import httpx
import pytest

from tests.integration.agent.harness import eventually, fold, rest, until
from tests.integration.agent.processes import GateServer, agent_process, gate_server

pytestmark = pytest.mark.processes
MARKER = "vystak.checkpoint"


@pytest.fixture
async def gates(tmp_path: Path) -> AsyncIterator[GateServer]:
    async with gate_server(tmp_path) as server:
        yield server


async def test_a_killed_agent_repeats_only_the_step_in_flight(
    tmp_path: Path, gates: GateServer
) -> None:
    gates.open("ask", "look")
    async with (
        agent_process("plain", tmp_path) as first,
        first.client.dispatch().opened() as events,
    ):
        await gates.reached("answer")
        seen = await until(events, type="response.output_item.added")
        seen += await until(events, type=MARKER)
        seen += await until(events, type=MARKER)
        await first.kill()
    gates.open("answer")
    async with agent_process("plain", tmp_path) as second:
        standing = await second.client.checkpoint()
        more = await second.client.resume(after_checkpoint_id=seen[-1]["checkpoint_id"]).all()
        whole = await second.client.resume().all()
    assert standing["checkpoint_id"] == seen[-1]["checkpoint_id"]
    assert (standing["active"], standing["finished"], standing["turns"]) == (
        False,
        False,
        ["turn-1"],
    )
    assert gates.begun == {"ask": 1, "look": 1, "answer": 2}
    assert fold(whole) == fold([*seen, *more])
    assert whole[-1]["type"] == "[DONE]"


async def test_a_finished_parallel_branch_survives_the_kill_and_is_not_run_again(
    tmp_path: Path, gates: GateServer
) -> None:
    gates.open("a")
    async with (
        agent_process("parallel", tmp_path) as first,
        first.client.dispatch().opened() as events,
    ):
        await gates.reached("b")
        seen = await until(events, item=_output("a"))
        await _stored(tmp_path / "sessions.db")
        await first.kill()
    async with agent_process("parallel", tmp_path) as second:
        markers = [event for event in seen if event["type"] == MARKER]
        async with second.client.resume(
            after_checkpoint_id=markers[-1]["checkpoint_id"]
        ).opened() as events:
            await gates.reached("b")
            more = await until(events, item=_output("a"))
            gates.open("b")
            more += [event async for event in events]
        whole = await second.client.resume().all()
    assert gates.begun == {"a": 1, "b": 2}
    assert fold(whole) == fold([*seen[: seen.index(markers[-1]) + 1], *more])
    assert fold(whole)["results"] == {
        "call-a": ("from a", False),
        "call-b": ("from b", False),
    }


async def test_a_decision_is_delivered_again_to_its_own_question_after_a_kill(
    tmp_path: Path, gates: GateServer
) -> None:
    async with agent_process("two_questions", tmp_path) as first:
        told = await first.client.dispatch().all()
        parked = await first.client.checkpoint()
        decision = {parked["interrupt_ids"][0]: "A"}
        async with first.client.resume(decisions=decision).opened():
            await gates.reached("told A")
            await first.kill()
    gates.open("told A")
    async with agent_process("two_questions", tmp_path) as second:
        again = await second.client.checkpoint()
        await second.client.resume(decisions=decision, epoch=2).all()
        next_one = await second.client.checkpoint()
        last = {next_one["interrupt_ids"][0]: "B"}
        told = await second.client.resume(decisions=last, epoch=2).all()
    assert again["interrupt_ids"] == parked["interrupt_ids"]
    assert next_one["interrupts"] == ["second?"]
    assert [*fold(told)["text"].values()] == ["A and B"]


async def test_sigterm_finishes_the_step_says_drained_and_exits_zero(
    tmp_path: Path, gates: GateServer
) -> None:
    gates.open("ask")
    async with agent_process("plain", tmp_path) as first:
        async with first.client.dispatch().opened() as events:
            await gates.reached("look")
            first.terminate()
            await first.client.health(503)
            refused = await first.client.dispatch(previous_response_id="resp_other").refusal()
            gates.open("look", "answer")
            seen = [event async for event in events]
        assert await first.exit_code() == 0
    async with agent_process("plain", tmp_path) as second:
        after = seen[-2]["checkpoint_id"]
        more = await second.client.resume(after_checkpoint_id=after).all()
        whole = await second.client.resume().all()
    assert refused == (503, "draining")
    assert seen[-1] == {"type": "vystak.drained"}
    assert gates.begun == {"ask": 1, "look": 1, "answer": 1}
    assert fold(whole) == fold([*seen, *more])


async def test_sigterm_waits_for_the_thread_of_a_sync_node(
    tmp_path: Path, gates: GateServer
) -> None:
    async with agent_process("threaded", tmp_path) as first:
        async with first.client.dispatch().opened() as events:
            await gates.reached("work")
            first.terminate()
            gates.open("work")
            seen = [event async for event in events]
        assert await first.exit_code() == 0
    assert [event["type"] for event in seen[-2:]] == [MARKER, "vystak.drained"]
    assert gates.begun == {"work": 1}


async def test_a_second_sigterm_exits_at_once(tmp_path: Path, gates: GateServer) -> None:
    async with (
        agent_process("threaded", tmp_path) as first,
        first.client.dispatch().opened() as events,
    ):
        await gates.reached("work")
        first.terminate()
        await first.client.health(503)
        first.terminate()
        with pytest.raises(httpx.TransportError):
            await rest(events)
        assert await first.exit_code() == 1


async def test_the_grace_time_bounds_the_stop(tmp_path: Path, gates: GateServer) -> None:
    async with (
        agent_process("threaded", tmp_path, VYSTAK_AGENT_GRACE_S="0.1") as first,
        first.client.dispatch().opened() as events,
    ):
        await gates.reached("work")
        first.terminate()
        assert await first.exit_code() == 1
        with pytest.raises(httpx.TransportError):
            await rest(events)


async def test_a_second_agent_waits_for_the_lock_and_then_serves(
    tmp_path: Path, gates: GateServer
) -> None:
    async with (
        agent_process("plain", tmp_path) as first,
        agent_process("plain", tmp_path, healthy=False) as second,
    ):
        answer = await second.client.http.get("/healthz")
        refused = await second.client.dispatch().refusal()
        await first.kill()
        await second.client.health(200)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert refused == (503, "starting")


async def test_an_idle_agent_stops_while_it_waits_for_the_lock(
    tmp_path: Path, gates: GateServer
) -> None:
    async with (
        agent_process("plain", tmp_path),
        agent_process("plain", tmp_path, healthy=False) as second,
    ):
        second.terminate()
        assert await second.exit_code() == 0


async def test_a_graph_with_static_breakpoints_is_refused_with_words(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended at its start"):
        async with agent_process("with_breakpoint", tmp_path):
            pass


async def _stored(path: Path) -> None:
    """Wait for a finished branch's result in the file: it is told a moment before."""
    query = """
        SELECT COUNT(*) FROM writes WHERE channel = 'messages'
        AND checkpoint_id = (SELECT MAX(checkpoint_id) FROM checkpoints)
    """

    async def count() -> int:
        async with connection.execute(query) as cursor:
            return sum([row[0] async for row in cursor])

    async with aiosqlite.connect(path) as connection:
        await eventually(count, bool)


def _output(name: str) -> dict[str, str]:
    return {"type": "function_call_output", "call_id": f"call-{name}", "output": f"from {name}"}
