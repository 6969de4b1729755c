"""A turn log on a real broker, and the ways around it."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nats.aio.client import Client

from tests.support.waiting import until
from vystak_turns.adapters.turnlog_nats.api import JetStreamApi
from vystak_turns.adapters.turnlog_nats.log import NatsTurnLog
from vystak_turns.adapters.turnlog_nats.streams import Streams
from vystak_turns.ports import LogMessage
from vystak_turns_rpc.stream import StreamSettings, stream_settings

if TYPE_CHECKING:
    from tests.support.nats_server import NatsServer

BASE = "vystak.default"
SUBJECT = f"{BASE}.streams.c1.t1"
# Long for a loopback, short for a test that waits for it to pass.
TIMEOUT_S = 0.5


@dataclass(slots=True)
class Place:
    """A turn log on a real broker, and the ways around it."""

    server: NatsServer
    client: Client
    api: JetStreamApi
    streams: Streams
    log: NatsTurnLog
    settings: StreamSettings

    async def ask(self, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return await self.api.ask(what, body or {})

    async def count(self) -> int:
        info = await self.ask(f"STREAM.INFO.{self.settings.name}")
        return int(info["state"]["messages"])

    async def put(self, body: bytes, subject: str = SUBJECT) -> None:
        """Publish as somebody else would: no headers, no expectation."""
        await self.client.jetstream().publish(subject, body)

    async def stall(self) -> None:
        """Stop the broker, and wait until each of its threads has noticed."""
        os.kill(self.server.pid, signal.SIGSTOP)
        threads = Path(f"/proc/{self.server.pid}/task")
        await until(
            lambda: all(") T " in (t / "stat").read_text() for t in threads.iterdir()), "the stop"
        )

    def go_on(self) -> None:
        """Let a stalled broker go on."""
        os.kill(self.server.pid, signal.SIGCONT)

    async def purge(self) -> None:
        await self.ask(f"STREAM.PURGE.{self.settings.name}")


def a_message(body: bytes = b'{"seq":0,"event":{"type":"x"}}', **fields: Any) -> LogMessage:
    given = {"subject": SUBJECT, "message_id": "t1:0:5", "token": 5, "expected_stream_seq": 0}
    return LogMessage(body=body, **{**given, **fields})


def a_client_of(client: Client) -> Place:
    settings = stream_settings(BASE)
    api = JetStreamApi(client, TIMEOUT_S)
    streams = Streams(api, [settings])
    log = NatsTurnLog(client, api, streams, TIMEOUT_S)
    return Place(None, client, api, streams, log, settings)  # type: ignore[arg-type]
