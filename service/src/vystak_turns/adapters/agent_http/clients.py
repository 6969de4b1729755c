"""HTTP clients for many streams and calls at once."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import httpx

# One more stream or call costs time in proportion to those that a client has: with a client for
# each hundred, thousands take linear time, and nobody else waits for seconds meanwhile.
_STREAMS_PER_CLIENT: Final = 100


@dataclass(slots=True)
class _Slot:
    client: httpx.AsyncClient
    streams: int = 0


class ManyClients:
    """As many clients as the open streams, or the calls under way, need.

    Each client keeps `keep_alive` idle connections. For streams that is none: on a connection that
    was used before, a broken call could not be told from a connection that had died long ago.
    """

    def __init__(
        self, base_url: str, context: ssl.SSLContext, connect_s: float, keep_alive: int
    ) -> None:
        self._base_url = base_url
        self._context = context
        self._connect_s = connect_s
        self._keep_alive = keep_alive
        self._slots: list[_Slot] = []

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[httpx.AsyncClient]:
        """Lend a client for one stream or call."""
        slot = self._slot_with_room()
        slot.streams += 1
        try:
            yield slot.client
        finally:
            slot.streams -= 1

    async def close(self) -> None:
        """Close all clients."""
        slots, self._slots = self._slots, []
        for slot in slots:
            await slot.client.aclose()

    def _slot_with_room(self) -> _Slot:
        for slot in self._slots:
            if slot.streams < _STREAMS_PER_CLIENT:
                return slot
        client = new_client(self._base_url, self._context, self._connect_s, self._keep_alive)
        slot = _Slot(client)
        self._slots.append(slot)
        return slot


def new_client(
    base_url: str, context: ssl.SSLContext, connect_s: float, keep_alive: int
) -> httpx.AsyncClient:
    """Make a client without a limit of connections that only limits the wait for connecting."""
    return httpx.AsyncClient(
        base_url=base_url,
        verify=context,
        trust_env=False,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=keep_alive),
        timeout=httpx.Timeout(None, connect=connect_s),
        headers={"accept-encoding": "identity"},
    )


def tls_context(base_url: str) -> ssl.SSLContext:
    """Return the context that all clients share: reading the system's certificates takes long."""
    if base_url.startswith("https:"):
        return ssl.create_default_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
