"""A TCP proxy that cuts and stalls: the network between turn control and everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from vystak_turns.embedded.places import LOOPBACK

_CHUNK_BYTES: Final = 64 * 1024


class Proxy:
    """Passes bytes on to a port of this machine, unless told otherwise."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False

    @property
    def port(self) -> int:
        """The port to connect to."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve on any free port."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        try:
            yield
        finally:
            self._server.close()
            self._flowing.set()
            self.cut()

    def cut(self) -> None:
        """Reset every connection, in the middle of whatever it carries."""
        for writer in self._open:
            writer.transport.abort()

    def refuse(self, *, refusing: bool) -> None:
        """Reset every connection, and every new one, until told otherwise."""
        self._refusing = refusing
        if refusing:
            self.cut()

    def stall(self, *, stalled: bool) -> None:
        """Keep every byte back, in both directions, until told otherwise; nothing is lost."""
        if stalled:
            self._flowing.clear()
        else:
            self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(LOOPBACK, self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, far_writer}
        self._open |= pair
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer))
                group.create_task(self._pump(far_reader, writer))
        finally:
            self._open -= pair
            for each in pair:
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
            writer.write_eof()
            return
        # One direction is broken: the other one has nobody to talk to.
        writer.transport.abort()
