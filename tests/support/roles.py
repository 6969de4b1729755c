"""The two roles of the broker: connections with generated credentials and loud violations."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

import nats

from tests.support.nats_server import running_nats_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from tests.support.nats_server import NatsServer

TURNS_INBOX_PREFIX = "_INBOX_turns"


@dataclass(frozen=True, slots=True)
class Role:
    """One connection. `violations` holds the broker's refusals, lower-cased as nats-py has them."""

    client: Client
    js: JetStreamContext
    violations: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Roles:
    """A broker with the shipped configuration, and what its two users may use."""

    server: NatsServer
    turns_password: str
    panel_password: str

    @property
    def turns_url(self) -> str:
        return self.server.url_as("turns", self.turns_password)

    @property
    def panel_url(self) -> str:
        return self.server.url_as("panel", self.panel_password)


def generated_password() -> str:
    """One that nats-server does not take for a number: it begins with a letter."""
    return "p" + secrets.token_hex(16)


@asynccontextmanager
async def running_broker_with_roles(
    folder: Path, config: Path | None = None, binary: Path | None = None
) -> AsyncIterator[Roles]:
    """The shipped configuration unless `config` names another."""
    turns, panel = generated_password(), generated_password()
    environment = {"VYSTAK_NATS_TURNS_PASSWORD": turns, "VYSTAK_NATS_PANEL_PASSWORD": panel}
    with as_file(files("vystak_turns") / "embedded" / "nats-server.conf") as shipped:
        async with running_nats_server(folder, config or shipped, environment, binary) as server:
            yield Roles(server, turns, panel)


@asynccontextmanager
async def connected(url: str, *, inbox_prefix: str = "_INBOX") -> AsyncIterator[Role]:
    """A connection that keeps the broker's refusals, which nats-py does not raise."""
    violations: list[str] = []

    async def note(error: Exception) -> None:
        if "permissions violation" in str(error):
            violations.append(str(error))

    client = await nats.connect(url, inbox_prefix=inbox_prefix.encode(), error_cb=note)
    try:
        yield Role(client, client.jetstream(timeout=1), violations)
    finally:
        await client.close()
