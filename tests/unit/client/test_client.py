from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from nats import errors as nats_errors
from nats.aio.client import Client

from vystak_turns_client.client import TurnsClient
from vystak_turns_client.connection import credentials
from vystak_turns_client.errors import NoResponders, NotConnected, ReplyTimeout, ServiceUnavailable
from vystak_turns_rpc import envelope
from vystak_turns_rpc.envelope import ProtocolError
from vystak_turns_rpc.errors import ErrorCode, RpcError
from vystak_turns_rpc.vocabulary import WireStatus

SUBJECT = "vystak.default.agents.a.tasks"

Answer = Callable[[dict[str, Any]], bytes]


@dataclass
class Reply:
    data: bytes


@dataclass
class FakeBroker:
    """Answers requests as a connected nats client does, or raises what it would raise."""

    answer: Answer | None = None
    error: Exception | None = None
    is_connected: bool = True
    asked: list[tuple[str, dict[str, Any], float]] = field(default_factory=list)

    async def request(self, subject: str, payload: bytes, timeout: float) -> Reply:  # noqa: ASYNC109
        request = json.loads(payload)
        self.asked.append((subject, request, timeout))
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return Reply(self.answer(request))


def client_of(broker: FakeBroker) -> TurnsClient:
    return TurnsClient(cast("Client", broker), SUBJECT, new_id=lambda: "id-1")


def result(**fields: Any) -> Answer:
    return lambda request: envelope.success(request["id"], fields)


async def test_create_sends_the_request_and_waits_30_s() -> None:
    broker = FakeBroker(result(turn_id="t", stream_subject="s"))
    created = await client_of(broker).create_detached({"input": "hi"}, "t", "s")
    assert (created.turn_id, created.stream_subject) == ("t", "s")
    params = {"request": {"input": "hi"}, "turn_id": "t", "stream_subject": "s"}
    request = {"jsonrpc": "2.0", "id": "id-1", "method": "responses/createDetached"}
    assert broker.asked == [(SUBJECT, {**request, "params": params}, 30.0)]


async def test_status_is_typed_and_waits_5_s() -> None:
    broker = FakeBroker(result(status="parked", interrupt={"q": 1}, park_generation=1, later=True))
    status = await client_of(broker).turn_status("t")
    assert (status.status, status.interrupt) == (WireStatus.PARKED, {"q": 1})
    assert broker.asked[0][1]["params"] == {"turn_id": "t"}
    assert broker.asked[0][2] == 5.0


async def test_a_decision_names_its_question_only_if_the_caller_does() -> None:
    broker = FakeBroker(result(turn_id="t"))
    client = client_of(broker)
    await client.resume_detached("t", None)
    await client.resume_detached("t", {"approved": True}, park_generation=0, interrupt_id="i")
    assert [asked[1]["params"] for asked in broker.asked] == [
        {"turn_id": "t", "resume": None},
        {"turn_id": "t", "resume": {"approved": True}, "park_generation": 0, "interrupt_id": "i"},
    ]
    assert broker.asked[0][2] == 5.0


async def test_cancel_tells_the_status() -> None:
    broker = FakeBroker(result(turn_id="t", status="running"))
    assert (await client_of(broker).cancel_detached("t")).status is WireStatus.RUNNING


async def test_an_error_reply_is_raised() -> None:
    broker = FakeBroker(lambda request: envelope.failure(request["id"], -32602, "not parked"))
    with pytest.raises(RpcError, match="not parked") as caught:
        await client_of(broker).resume_detached("t", 1)
    assert caught.value.code is ErrorCode.INVALID_PARAMS


@pytest.mark.parametrize(
    "answer", [result(status="dancing"), result(), lambda _: b"rubbish", lambda _: b"{}"]
)
async def test_an_unreadable_reply_is_a_protocol_error(answer: Answer) -> None:
    with pytest.raises(ProtocolError):
        await client_of(FakeBroker(answer)).turn_status("t")


@pytest.mark.parametrize(
    ("error", "is_connected", "expected"),
    [
        (nats_errors.NoRespondersError(), True, NoResponders),
        (nats_errors.TimeoutError(), True, ReplyTimeout),
        (nats_errors.TimeoutError(), False, NotConnected),
        (nats_errors.ConnectionClosedError(), False, NotConnected),
        (nats_errors.ConnectionDrainingError(), True, NotConnected),
    ],
)
async def test_each_way_of_getting_no_answer_has_its_own_error(
    error: Exception, is_connected: bool, expected: type[ServiceUnavailable]
) -> None:
    broker = FakeBroker(error=error, is_connected=is_connected)
    with pytest.raises(ServiceUnavailable) as caught:
        await client_of(broker).turn_status("t")
    assert type(caught.value) is expected


def test_a_credentials_file_holds_a_user_or_a_jwt(tmp_path: Path) -> None:
    line = tmp_path / "line"
    line.write_text("panel:pass:word\n")
    assert credentials(line) == {"user": "panel", "password": "pass:word"}
    jwt = tmp_path / "jwt.creds"
    jwt.write_text("-----BEGIN NATS USER JWT-----\nabc\n------END NATS USER JWT------\n")
    assert credentials(jwt) == {"user_credentials": str(jwt)}
    assert credentials(None) == {}


@pytest.mark.parametrize("text", ["", "panel", ":x", "panel:", "a:b\nc:d"])
def test_an_unusable_credentials_file_is_explained(tmp_path: Path, text: str) -> None:
    file = tmp_path / "creds"
    file.write_text(text)
    with pytest.raises(ValueError, match="user:password"):
        credentials(file)
    with pytest.raises(ValueError, match="cannot be read"):
        credentials(tmp_path / "missing")


def test_the_light_client_imports_nothing_heavy() -> None:
    program = """
import sys
import vystak_turns_client.client, vystak_turns_client.reader, vystak_turns_client.fold
import vystak_turns_client.streams, vystak_turns_client.connection
heavy = {"httpx", "typer", "rich", "fastapi", "uvicorn", "aiosqlite", "langgraph"}
print(sorted(heavy & set(sys.modules)))
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.strip() == "[]"
