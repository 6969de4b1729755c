"""R14 and R11: the right error for every malformed request, and nothing journaled or published."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import NoRespondersError

from tests.support.running_service import BASE, STREAM, TASKS, asked, journaled, running_service

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from tests.support.nats_server import NatsServer
    from tests.support.running_service import RunningService

pytestmark = pytest.mark.broker

RESUME = "responses/resumeDetached"
SUBJECT = f"{BASE}.streams.c1.t1"
GOOD = {"turn_id": "t1", "stream_subject": SUBJECT, "request": {"input": "hello"}}


def call(params: Any, method: Any = "responses/createDetached", **more: Any) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "id": "x", "method": method, "params": params, **more}
    ).encode()


def create(**changes: Any) -> bytes:
    return call({**GOOD, **changes})


def without(name: str) -> bytes:
    return call({key: value for key, value in GOOD.items() if key != name})


BAD = {
    "nothing at all": (b"", -32700, None),
    "rubbish bytes": (b"\xff\x00\x9f{", -32700, None),
    "half a request": (b'{"jsonrpc": "2.0", "id": 1', -32700, None),
    "not a number": (b'{"jsonrpc": "2.0", "id": NaN}', -32700, None),
    "deeply nested": (b"[" * 100_000, -32700, None),
    "a batch": (b"[]", -32600, None),
    "a text": (b'"hello"', -32600, None),
    "an id that is an object": (call(GOOD, id={}), -32600, None),
    "another version": (call(GOOD, jsonrpc="1.0"), -32600, "x"),
    "no method": (call(GOOD, method=None), -32600, "x"),
    "an unknown method": (call(GOOD, method="responses/destroy"), -32601, "x"),
    "a list of params": (call([1]), -32602, "x"),
    "params that are a text": (call("t1"), -32600, "x"),
    "no turn id": (without("turn_id"), -32602, "x"),
    "no subject": (without("stream_subject"), -32602, "x"),
    "no request": (without("request"), -32602, "x"),
    "an empty request": (create(request={}), -32602, "x"),
    "a request that is a text": (create(request="hello"), -32602, "x"),
    "a number as turn id": (create(turn_id=1), -32602, "x"),
    "a turn id with a wildcard": (create(turn_id="*"), -32602, "x"),
    "a turn id with a dot": (create(turn_id="a.b"), -32602, "x"),
    "a subject of another base": (create(stream_subject="other.streams.c1.t1"), -32602, "x"),
    "a subject of another turn": (create(stream_subject=f"{BASE}.streams.c1.t2"), -32602, "x"),
    "a wildcard for the turn": (create(stream_subject=f"{BASE}.streams.c1.*"), -32602, "x"),
    "a wildcard for the rest": (create(stream_subject=f"{BASE}.streams.>"), -32602, "x"),
    "a subject with an empty token": (create(stream_subject=f"{BASE}.streams..t1"), -32602, "x"),
    "a subject with a space": (create(stream_subject=f"{BASE}.streams.c 1.t1"), -32602, "x"),
    "a subject with a line end": (create(stream_subject=f"{SUBJECT}\r\n"), -32602, "x"),
    "a deeper subject": (create(stream_subject=f"{SUBJECT}.more"), -32602, "x"),
    "a tasks subject": (create(stream_subject=TASKS), -32602, "x"),
    "an odd thread": (create(request={"previous_response_id": "a b"}), -32602, "x"),
    "a decision for nobody": (call({"turn_id": "t9", "resume": 1}, RESUME), -32602, "x"),
    "no decision": (call({"turn_id": "t9"}, RESUME), -32602, "x"),
}


def error_of(reply: bytes) -> tuple[int, Any]:
    body = json.loads(reply)
    assert body["jsonrpc"] == "2.0"
    assert body["error"]["message"]
    return body["error"]["code"], body["id"]


async def check_nothing_happened(service: RunningService, nc: Client, folder: Path) -> None:
    status = await service.call("responses/turnStatus", {"turn_id": "t1"})
    assert status["result"]["status"] == "unknown"
    assert journaled(folder / "turns.db") == []
    assert (await nc.jetstream().stream_info(STREAM)).state.messages == 0


@pytest.mark.parametrize("name", BAD)
async def test_bad_input_gets_its_error_and_changes_nothing(
    service: RunningService, nc: Client, tmp_path: Path, name: str
) -> None:
    payload, code, caller_id = BAD[name]

    assert error_of(await asked(nc, payload)) == (code, caller_id)

    answer = await service.http.post("/rpc", content=payload)
    assert answer.status_code == 200
    assert error_of(answer.content) == (code, caller_id)
    await check_nothing_happened(service, nc, tmp_path)


async def test_nobody_answers_for_an_unknown_agent(service: RunningService, nc: Client) -> None:
    with pytest.raises(NoRespondersError):
        await asked(nc, create(), "vystak.default.agents.nobody.tasks")


async def test_over_http_an_unknown_agent_is_told_the_known_ones(service: RunningService) -> None:
    answer = await service.http.post("/rpc?agent=nobody", content=create())

    assert error_of(answer.content) == (-32602, "x")
    assert "shop" in answer.json()["error"]["message"]


async def test_with_several_agents_one_must_be_named(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    agents = {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:1"}
    async with running_service(tmp_path, nats_server.url, agents=agents) as service:
        await service.until_ready()

        unnamed = await service.http.post("/rpc", content=create())
        named = await service.http.post("/rpc?agent=b", content=create())

    assert error_of(unnamed.content) == (-32602, "x")
    assert "a, b" in unnamed.json()["error"]["message"]
    assert named.json()["result"]["turn_id"] == "t1"


async def test_a_body_over_the_limit_is_refused(tmp_path: Path, nats_server: NatsServer) -> None:
    async with running_service(tmp_path, nats_server.url, request_max_bytes=100) as service:
        await service.until_ready()

        answer = await service.http.post("/rpc", content=create(request={"input": "x" * 200}))

    assert error_of(answer.content) == (-32600, None)
    assert "100 bytes" in answer.json()["error"]["message"]


async def test_a_page_of_another_host_is_refused(
    service: RunningService, nc: Client, tmp_path: Path
) -> None:
    headers = {"Origin": "https://evil.example"}

    answer = await service.http.post("/rpc", content=create(), headers=headers)

    assert answer.status_code == 403
    await check_nothing_happened(service, nc, tmp_path)


async def test_an_origin_without_sense_is_refused(service: RunningService) -> None:
    answer = await service.http.post("/rpc", content=create(), headers={"origin": "http://[::1"})

    assert answer.status_code == 403


async def test_a_caller_that_leaves_in_the_middle_of_its_body_is_no_defect(
    service: RunningService, caplog: pytest.LogCaptureFixture
) -> None:
    url = service.http.base_url
    _, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()

    assert (await service.http.get("/healthz")).status_code == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_notification_is_carried_out_and_gets_no_answer(
    service: RunningService, nc: Client
) -> None:
    body = json.loads(create())
    del body["id"]

    answer = await service.http.post("/rpc", json=body)

    assert (answer.status_code, answer.content) == (204, b"")
    status = json.loads(await asked(nc, call({"turn_id": "t1"}, "responses/turnStatus")))
    assert status["result"]["status"] == "running"


async def test_a_turn_can_be_looked_at_over_http(service: RunningService) -> None:
    await service.call("responses/createDetached", GOOD)

    known = await service.http.get("/v1/turns/t1")
    unknown = await service.http.get("/v1/turns/t2")

    assert (known.status_code, known.json()["status"]) == (200, "running")
    assert unknown.status_code == 404
