"""Callers that are not turn control, and callers that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage, HumanMessage

from tests.integration.agent.graphs import Gates, asking, one_node, plain_tools
from tests.integration.agent.harness import THREAD, Stream, fold, running_agent
from vystak_turns_agent.checkpointer import opened_saver


@pytest.fixture
def gates() -> Gates:
    gates = Gates()
    gates.open("ask", "look", "answer")
    return gates


async def test_a_plain_call_gets_a_new_thread_and_its_answer(tmp_path: Path, gates: Gates) -> None:
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        first = (await agent.http.post("/v1/responses", json={"input": "hi"})).json()
        more = {"input": "again", "previous_response_id": first["id"], "stream": False}
        second = (await agent.http.post("/v1/responses", json=more)).json()
        kept = (await agent.http.get(f"/v1/responses/{first['id']}")).json()
        unknown = await agent.http.get("/v1/responses/resp_unseen")
    assert first["id"].startswith("resp_")
    assert len(first["id"]) == len(THREAD)
    assert (first["object"], first["status"], first["model"]) == ("response", "completed", "tester")
    assert first["output"][0]["content"] == [
        {"type": "output_text", "text": "let me lookall is done"}
    ]
    assert second["id"] == first["id"]
    assert kept["output"][0]["content"][0]["text"] == "all is done"
    assert unknown.status_code == 404


async def test_message_items_are_taken_as_input(tmp_path: Path, gates: Gates) -> None:
    items = [
        {"role": "system", "content": "be kind"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    ]
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        answer = await agent.http.post("/v1/responses", json={"input": items})
    assert answer.json()["status"] == "completed"


async def test_a_plain_resume_answers_the_pending_question(tmp_path: Path) -> None:
    async with running_agent(asking(Gates()), tmp_path / "s.db") as agent:
        first = await agent.http.post("/v1/responses", json={"input": "hi"})
        thread = first.json()["id"]
        path = "/v1/_vystak/resume"
        quiet = await Stream(agent.http, path, {"thread_id": thread}).all()
        told = await Stream(agent.http, path, {"thread_id": thread, "resume": False}).all()
        again = await Stream(agent.http, path, {"thread_id": thread}).all()
        refused = await Stream(agent.http, path, {"thread_id": thread, "resume": 1}).refusal()
        unseen = await Stream(agent.http, path, {"thread_id": "resp_unseen"}).refusal()
    assert first.json()["status"] == "incomplete"
    assert [event["type"] for event in quiet] == ["response.created"]
    assert told[0]["response"]["id"] == thread
    assert [*fold(told)["text"].values()] == ["may I do it", "you said False"]
    assert told[-2]["type"] == again[-2]["type"] == "response.completed"
    assert refused == (409, "not_pending")
    assert unseen == (404, "unknown_thread")


async def test_models_card_and_health_are_served(tmp_path: Path, gates: Gates) -> None:
    async with running_agent(plain_tools(gates), tmp_path / "s.db") as agent:
        health = await agent.http.get("/healthz")
        models = (await agent.http.get("/v1/models")).json()
        card = await agent.http.get("/.well-known/agent.json")
    assert health.json() == {"status": "ok"}
    assert models["data"][0]["id"] == "tester"
    assert card.json()["name"] == "tester"
    assert "_vystak" not in card.text


BAD_DISPATCHES: list[Any] = [
    b"",
    b"{",
    b"[]",
    b"\xff\xfe",
    b'"text"',
    b"[" * 100_000,
    b'{"input": NaN}',
    b'{"input": "\\ud800"}',
    {},
    {"input": ""},
    {"input": []},
    {"input": 7},
    {"input": [{"role": "tool", "content": "x"}]},
    {"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]},
    {"input": "x", "previous_response_id": "a b"},
    {"input": "x", "previous_response_id": ""},
    {"input": "x", "previous_response_id": 7},
    {"input": "x", "stream": "yes"},
    {"input": "x", "tools": "x" * 70_000},
    {"input": "x", "vystak": {}},
    {"input": "x", "vystak": {"turn_id": "a.b", "epoch": 1}},
    {"input": "x", "vystak": {"turn_id": "t", "epoch": -1}},
    {"input": "x", "vystak": {"turn_id": "t", "epoch": "1"}},
    {"input": "x", "vystak": {"turn_id": "t", "epoch": True}},
    {"input": "x", "vystak": {"turn_id": "t", "epoch": 10**30}},
]
BAD_RESUMES: list[Any] = [
    {},
    {"thread_id": ""},
    {"thread_id": 7},
    {"thread_id": THREAD, "turn_id": None, "epoch": 1},
    {"thread_id": THREAD, "turn_id": "t"},
    {"thread_id": THREAD, "turn_id": "t", "epoch": 1, "after_checkpoint_id": 7},
    {"thread_id": THREAD, "turn_id": "t", "epoch": 1, "decisions": []},
]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(("/v1/responses", body) for body in BAD_DISPATCHES),
        *(("/v1/_vystak/resume", body) for body in BAD_RESUMES),
        ("/v1/_vystak/drain", {"thread_id": THREAD}),
    ],
)
async def test_a_bad_body_is_refused_with_words(tmp_path: Path, path: str, body: Any) -> None:
    async with running_agent(plain_tools(Gates()), tmp_path / "s.db") as agent:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await agent.http.post(path, content=content)
        assert answer.status_code == 400, answer.text
        assert len(answer.json()["error"]) > 10
        assert (await agent.http.get("/healthz")).status_code == 200


async def test_a_resume_without_a_thread_gets_the_originals_words(tmp_path: Path) -> None:
    async with running_agent(plain_tools(Gates()), tmp_path / "s.db") as agent:
        answer = await agent.http.post("/v1/_vystak/resume", json={})
        asked = await agent.http.get("/v1/_vystak/checkpoint")
    assert (answer.status_code, answer.json()["error"]) == (400, "thread_id required")
    assert asked.status_code == 400


async def test_a_body_over_the_limit_is_refused(tmp_path: Path) -> None:
    async with running_agent(plain_tools(Gates()), tmp_path / "s.db", body_max_bytes=1000) as agent:
        answer = await agent.http.post("/v1/responses", json={"input": "x" * 1001})
    assert answer.status_code == 413


async def test_more_runs_than_the_limit_are_asked_to_come_later(tmp_path: Path) -> None:
    gates = Gates()
    async with running_agent(plain_tools(gates), tmp_path / "s.db", runs_max=1) as agent:
        async with agent.dispatch().opened():
            refused = await agent.dispatch(previous_response_id="resp_other").refusal()
            gates.open("ask", "look", "answer")
        await agent.idle()
    assert refused == (503, "full")


async def test_a_whole_answer_of_a_failing_graph_is_an_error(tmp_path: Path) -> None:
    gates = Gates()

    async def fail(state: Any) -> dict[str, Any]:
        raise ValueError("no")

    async with running_agent(one_node("fail", fail), tmp_path / "s.db") as agent:
        answer: httpx.Response = await agent.http.post("/v1/responses", json={"input": "x"})
    assert (answer.status_code, answer.json()["error"]) == (500, "ValueError: no")
    assert not gates.begun


async def test_a_thread_from_before_there_were_stamps_is_continued(tmp_path: Path) -> None:
    graph = asking(Gates())
    config: Any = {"configurable": {"thread_id": "resp_old"}}
    async with opened_saver(tmp_path / "s.db") as saver:
        old = graph.compile(checkpointer=saver)
        await old.ainvoke({"messages": [AIMessage("long ago"), HumanMessage("x")]}, config)
    async with running_agent(graph, tmp_path / "s.db") as agent:
        body = {"thread_id": "resp_old", "resume": "yes"}
        told = await Stream(agent.http, "/v1/_vystak/resume", body).all()
        standing = await agent.checkpoint("resp_old")
    assert [*fold(told)["text"].values()] == ["may I do it", "you said yes"]
    assert standing["turns"] == [standing["turn_id"]]
