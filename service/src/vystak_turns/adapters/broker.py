"""The one connection to the broker: sought for ever, and loud about what the broker refuses.

nats-py tells of a refused publish or subscribe to its error callback alone: the call itself
succeeds, or times out. So refusals are logged as errors, kept for `/readyz`, and handed to whoever
listens.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog
from nats.aio.client import Client
from nats.errors import Error, SlowConsumerError

_log = structlog.get_logger(__name__)

CONNECT_TIMEOUT_S: Final = 5
PING_INTERVAL_S: Final = 15
RECONNECT_WAIT_S: Final = 0.25
CLOSE_TIMEOUT_S: Final = 2.0
# The same refusal is told again only after this time, and forgotten by `/readyz`.
REFUSAL_AGE_S: Final = 60.0

_REFUSED: Final = "permissions violation"


class LastingClient(Client):
    """nats-py's client, except that nothing of the broker ends it for good or makes it deaf.

    nats-py gives a connection up, and forgets its subscriptions, when the broker names an error
    other than a refusal (a slow consumer, expired credentials): here it connects again. And it
    stops reading when the answer to a flush comes after the flush was given up.
    """

    async def _process_err(self, err_msg: str) -> None:
        if _REFUSED in err_msg.lower():
            await super()._process_err(err_msg)
        else:
            await self._process_op_err(Error(f"nats: {err_msg}"))

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()


class Broker:
    """Keeps `client` connected; its subscriptions outlive every lost connection.

    `credentials` are further arguments of nats-py's `connect`. `ended` is set if the connection
    is lost beyond repair, which only a defect can bring about: the process should end then.
    """

    def __init__(
        self, servers: Sequence[str], credentials: Mapping[str, Any], inbox_prefix: str
    ) -> None:
        self.client: Client = LastingClient()
        self.ended = asyncio.Event()
        self._servers = list(servers)
        self._credentials = dict(credentials)
        self._inbox_prefix = inbox_prefix
        self._on_refusal: list[Callable[[str], None]] = []
        self._on_loss: list[Callable[[], None]] = []
        self._closing = False
        self._told: dict[str, float] = {}
        self._refusal: tuple[str, float] | None = None
        self._trouble: str | None = None
        self._connected = asyncio.Event()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def on_refusal(self, listener: Callable[[str], None]) -> None:
        """Have the words of every refusal told; nats-py gives them in lower case."""
        self._on_refusal.append(listener)

    def on_loss(self, listener: Callable[[], None]) -> None:
        """Have it told whenever the connection is lost."""
        self._on_loss.append(listener)

    def start(self) -> None:
        """Begin to connect."""
        self._task = asyncio.create_task(self._connect(), name="broker")

    async def close(self) -> None:
        """Send what is buffered and end the connection."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        with contextlib.suppress(Error, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                if self.client.is_connected:
                    await self.client.flush()
                await self.client.close()

    async def wait_lost(self) -> None:
        """Wait until there is no connection."""
        await self._lost.wait()

    async def wait_connected(self) -> None:
        """Wait until there is a connection."""
        await self._connected.wait()

    @property
    def trouble(self) -> str | None:
        """Why there is no connection; `None` when there is one."""
        if self.client.is_connected:
            return None
        return self._trouble or "connecting"

    @property
    def refusal(self) -> str | None:
        """What the broker refused within the last minute."""
        if self._refusal is None or self._now_s() - self._refusal[1] > REFUSAL_AGE_S:
            return None
        return self._refusal[0]

    async def _connect(self) -> None:
        await self.client.connect(
            self._servers,
            name="vystak-turns",
            error_cb=self._error,
            disconnected_cb=self._disconnected,
            reconnected_cb=self._reconnected,
            closed_cb=self._gone,
            lame_duck_mode_cb=self._lame_duck,
            connect_timeout=CONNECT_TIMEOUT_S,
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]  # slept on as it is
            ping_interval=PING_INTERVAL_S,
            inbox_prefix=self._inbox_prefix,
            **self._credentials,
        )
        self._report_connected("connected to the broker")

    # nats-py awaits its callbacks, hence `async`.

    async def _error(self, error: Exception) -> None:
        words = str(error) or type(error).__name__
        if _REFUSED in words.lower():
            self._refused(words)
        elif isinstance(error, SlowConsumerError):
            if self._is_news(words):
                _log.error("requests come faster than they are answered: some are dropped")
        elif words != self._trouble:
            self._trouble = words
            _log.warning("trouble with the broker, trying on", reason=words)

    async def _disconnected(self) -> None:
        self._connected.clear()
        self._lost.set()
        if not self._closing:
            _log.warning("the connection to the broker is lost")
        for listener in self._on_loss:
            listener()

    async def _reconnected(self) -> None:
        self._report_connected("connected to the broker again")

    async def _gone(self) -> None:
        if not self._closing:
            _log.critical("the connection to the broker has ended for good")
            self.ended.set()

    async def _lame_duck(self) -> None:
        _log.warning("the broker is about to stop; another one or the next one is taken")

    def _report_connected(self, words: str) -> None:
        self._trouble = None
        self._lost.clear()
        self._connected.set()
        url = self.client.connected_url
        _log.info(words, url=url.geturl() if url else None, max_payload=self.client.max_payload)

    def _refused(self, words: str) -> None:
        self._refusal = (words, self._now_s())
        if self._is_news(words):
            hint = "give this user the permissions of the role `turns`"
            _log.error("the broker refuses us", reason=words, cure=hint)
        for listener in self._on_refusal:
            listener(words)

    def _is_news(self, words: str) -> bool:
        now_s = self._now_s()
        self._told = {w: at for w, at in self._told.items() if now_s - at < REFUSAL_AGE_S}
        return self._told.setdefault(words, now_s) == now_s

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
