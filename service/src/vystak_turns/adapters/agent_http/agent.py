"""An agent over HTTP: calls that run a turn and stream it, and calls that only ask.

What counts is whether a call may have started something. When no connection was made, or the agent
answered that it does not take the call, nothing was started and the claim can be given back. When
the connection broke before an answer came, something may run by now: that is a lost stream, so
that a turn which kills its agent at the first byte still spends its attempts (R9).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final, cast

import httpx

from vystak_turns.adapters.agent_http import answers, bodies
from vystak_turns.adapters.agent_http.clients import ManyClients, tls_context
from vystak_turns.adapters.agent_http.items import is_last, items_of
from vystak_turns.adapters.agent_http.sse import EventTooLargeError, SseSplitter
from vystak_turns.core.facts import Refusal, StreamEnd
from vystak_turns.core.findings import AgentView
from vystak_turns.ports import (
    AgentSilentError,
    CallRefusedError,
    DispatchCall,
    Ended,
    RunCall,
    StreamItem,
    TooLarge,
)
from vystak_turns_rpc.vocabulary import Json

_RESPONSES: Final = "/v1/responses"
_RESUME: Final = "/v1/_vystak/resume"
_CHECKPOINT: Final = "/v1/_vystak/checkpoint"
_DRAIN: Final = "/v1/_vystak/drain"
_HEALTH: Final = "/healthz"
_OK: Final = 200
_ERROR_BODY_MAX: Final = 64 * 1024
# What an answer may hold, in events of the largest size: all questions of a park, for example.
_ANSWER_EVENTS: Final = 16
# When an agent comes back all its turns ask at once: in portions, so that nobody else has to wait.
_VIEWS_AT_ONCE: Final = 100
_NOT_CONNECTED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_TROUBLE: Final = (httpx.HTTPError, httpx.StreamError, OSError)


@dataclass(frozen=True, slots=True)
class AgentTimes:
    """How long the agent is waited for, in seconds; `event_max_bytes` bounds one event.

    `answer_s` is the wait for the head of a stream's answer, `call_s` that for any whole answer
    of another call. `heartbeat_s` is how often an agent sends a comment line; once one was seen,
    three missed ones mean that the stream is lost. An agent that never sent one may be silent for
    `gap_s`.
    """

    connect_s: float = 10.0
    answer_s: float = 60.0
    call_s: float = 30.0
    health_s: float = 2.0
    heartbeat_s: float = 10.0
    gap_s: float = 300.0
    event_max_bytes: int = 1024 * 1024


class HttpAgent:
    """`ports.Agent` at a base URL. Environment proxies are not used: agents are neighbours."""

    def __init__(self, base_url: str, times: AgentTimes | None = None) -> None:
        self._times = times or AgentTimes()
        context = tls_context(base_url)
        connect_s = self._times.connect_s
        self._streams = ManyClients(base_url, context, connect_s, keep_alive=0)
        self._calls = ManyClients(base_url, context, connect_s, keep_alive=10)
        self._answer_max = _ANSWER_EVENTS * self._times.event_max_bytes
        self._views = asyncio.Semaphore(_VIEWS_AT_ONCE)

    async def close(self) -> None:
        """Close all connections."""
        await self._streams.close()
        await self._calls.close()

    async def healthy(self) -> bool:
        """Whether `/healthz` answers 200."""
        try:
            status, _ = await self._ask("GET", _HEALTH, self._times.health_s)
        except (TimeoutError, EventTooLargeError, *_TROUBLE):
            return False
        return status == _OK

    async def view(self, thread_id: str, turn_id: str) -> AgentView:
        """Ask where the thread stands.

        Raises:
            AgentSilentError: it could not be asked, or the answer makes no sense.

        """
        path = str(httpx.URL(_CHECKPOINT, params={"thread_id": thread_id}))
        try:
            async with self._views:
                status, body = await self._ask("GET", path, self._times.call_s)
        except EventTooLargeError as error:
            words = f"the answer of {_CHECKPOINT} is larger than {self._answer_max} bytes"
            raise AgentSilentError(words) from error
        except (TimeoutError, *_TROUBLE) as error:
            raise AgentSilentError(f"the agent could not be asked: {_words(error)}") from error
        if status != _OK:
            raise AgentSilentError(f"the agent answered {status} to {_CHECKPOINT}")
        try:
            return answers.read_view(body, turn_id)
        except ValueError as error:
            raise AgentSilentError(
                f"the answer of {_CHECKPOINT} makes no sense: {error}"
            ) from error

    async def drain(self, thread_id: str, turn_id: str, epoch: int) -> None:
        """Ask the agent to finish the step in flight and stop the run; best effort."""
        body = {"thread_id": thread_id, "turn_id": turn_id, "epoch": epoch}
        try:
            await self._ask("POST", _DRAIN, self._times.call_s, body)
        except (TimeoutError, EventTooLargeError, *_TROUBLE):
            return

    async def _ask(
        self, method: str, path: str, limit_s: float, body: Json = None
    ) -> tuple[int, bytes]:
        """Make a call with a short answer; return its status and body, which has a limit (R15)."""
        with self._calls.borrowed() as client:
            request = _request(client, method, path, body)
            async with asyncio.timeout(limit_s):
                response = await client.send(request, stream=True)
                try:
                    return response.status_code, await self._whole(response)
                finally:
                    await response.aclose()

    async def _whole(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self._answer_max:
                raise EventTooLargeError
        return bytes(body)

    @asynccontextmanager
    async def run(self, call: RunCall) -> AsyncIterator[AsyncIterator[StreamItem]]:
        """Dispatch or resume, and read the stream; leaving closes the connection.

        Raises:
            CallRefusedError: on entering, when the agent does not take the call.

        """
        with self._streams.borrowed() as client:
            response = await self._call(client, call)
            try:
                async with aclosing(self._read(response)) as items:
                    yield items
            finally:
                if response is not None:
                    await response.aclose()

    async def _call(self, client: httpx.AsyncClient, call: RunCall) -> httpx.Response | None:
        """Return the open answer, `None` when the connection broke before there was one."""
        if isinstance(call, DispatchCall):
            request = _request(client, "POST", _RESPONSES, bodies.dispatch_body(call))
        else:
            request = _request(client, "POST", _RESUME, bodies.resume_body(call))
        try:
            async with asyncio.timeout(self._times.answer_s):
                response = await client.send(request, stream=True)
        except _NOT_CONNECTED as error:
            raise CallRefusedError(Refusal.UNREACHABLE, _words(error)) from error
        except (TimeoutError, *_TROUBLE):
            return None
        if response.status_code == _OK:
            return response
        raise answers.refusal(response.status_code, await self._start_of_body(response))

    async def _start_of_body(self, response: httpx.Response) -> bytes:
        """Read at most so much of an error's body as words can be in, and close the answer."""
        body = b""
        try:
            async with asyncio.timeout(self._times.call_s):
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > _ERROR_BODY_MAX:
                        break
        except (TimeoutError, *_TROUBLE):
            return body  # the status says enough
        finally:
            await response.aclose()
        return body

    async def _read(self, response: httpx.Response | None) -> AsyncGenerator[StreamItem, None]:
        if response is None:
            yield Ended(StreamEnd.LOST)
            return
        splitter = SseSplitter(self._times.event_max_bytes)
        try:
            async for chunk in self._chunks(response, splitter):
                for item in items_of(splitter.feed(chunk)):
                    yield item
                    if is_last(item):
                        return
            for item in items_of(splitter.rest()):
                yield item
                if is_last(item):
                    return
        except EventTooLargeError:
            limit = self._times.event_max_bytes
            yield TooLarge(f"the agent sent an event of more than {limit} bytes: make it smaller")
            return
        except (TimeoutError, *_TROUBLE):
            yield Ended(StreamEnd.LOST)
            return
        yield Ended(StreamEnd.CLEAN)

    async def _chunks(
        self, response: httpx.Response, splitter: SseSplitter
    ) -> AsyncGenerator[bytes, None]:
        """Read the body; raises TimeoutError when the agent was silent for too long."""
        body = cast("AsyncGenerator[bytes, None]", response.aiter_raw())
        async with aclosing(body) as chunks:
            while True:
                beating = splitter.heartbeat_seen
                limit_s = 3 * self._times.heartbeat_s if beating else self._times.gap_s
                # Around the read only: the reader's own work on an event is not the agent's.
                async with asyncio.timeout(limit_s):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                yield chunk


def _request(client: httpx.AsyncClient, method: str, path: str, body: Json) -> httpx.Request:
    if body is None:
        return client.build_request(method, path)
    # In ASCII, so that half of a surrogate pair in a request cannot stop it.
    content = json.dumps(body, separators=(",", ":")).encode("ascii")
    headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
    return client.build_request(method, path, content=content, headers=headers)


def _words(error: BaseException) -> str:
    return answers.clean(f"{type(error).__name__}: {error}")
