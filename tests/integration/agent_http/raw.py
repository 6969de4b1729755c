"""An agent as bytes on a socket, which can cut, stall and talk nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sent."""

    method: str
    target: str
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Connection:
    """The answering side of one request."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))
        await self.writer.drain()

    async def chunks(self, *parts: bytes) -> None:
        for part in parts:
            await self.send(b"%x\r\n%b\r\n" % (len(part), part))

    async def left(self) -> None:
        """Wait until the client has gone."""
        with contextlib.suppress(OSError):
            await self.reader.read()

    def reset(self) -> None:
        """Cut the connection as the death of a process may."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Answer = Callable[[Connection], Awaitable[None]]


@dataclass(slots=True)
class RawAgent:
    """Answers every request in the same way and then closes the connection."""

    answer: Answer
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            self.requests.append(await _request(reader))
            self.asked.set()
            await self.answer(Connection(reader, writer))
            self.answered.set()
        writer.close()

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def raw_agent(answer: Answer) -> AsyncIterator[RawAgent]:
    agent = RawAgent(answer)
    server = await asyncio.start_server(agent.serve, "127.0.0.1", 0)
    agent.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield agent
    finally:
        server.close()
        agent.abort()


def reply(status: int, body: bytes = b"") -> Answer:
    """Answer with a whole body."""

    async def answer(connection: Connection) -> None:
        head = b"HTTP/1.1 %d Words\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        await connection.send(head % (status, len(body)), body)

    return answer


def stream(*parts: bytes, end: bytes = LAST_CHUNK) -> Answer:
    """Stream these parts, one chunk each; without `end` the body is cut short."""

    async def answer(connection: Connection) -> None:
        await connection.send(CHUNKED)
        await connection.chunks(*parts)
        await connection.send(end)

    return answer


async def _request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    method, target, _ = head.split(" ", 2)
    length = 0
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
    return Request(method, target, await reader.readexactly(length))
