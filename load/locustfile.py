"""Users of turn control, over NATS as a panel is one, and over its HTTP mirror.

`make load` starts a stack and runs this for a minute; UI=1 shows locust's web page. By hand,
against a stack that is there (`make up` prints its addresses):

    export VYSTAK_NATS_CREDS=.vystak-turns/credentials/panel.creds
    locust -f load/locustfile.py --host http://127.0.0.1:8130

Failures are failures: a wrong transcript, a second terminal event, a gap in the sequence, a status
that says `unknown`, an error, a timeout.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Coroutine, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

import gevent
from locust import HttpUser, User, constant, events, task
from locust.env import Environment
from nats.aio.client import Client
from requests.exceptions import RequestException
from transcripts import DELETED, FOUR_STEPS, Expected, WrongTurnError, check
from turns_loop import LoopThread

from vystak_turns_client.client import TurnsClient
from vystak_turns_client.connection import connect
from vystak_turns_client.reader import follow, read_all
from vystak_turns_rpc import envelope, methods
from vystak_turns_rpc.subjects import tasks_subject, turn_base, turn_subject
from vystak_turns_rpc.vocabulary import WireStatus

T = TypeVar("T")

NATS_URL = os.environ.get("VYSTAK_NATS_URL") or "nats://127.0.0.1:4222"
CREDS = os.environ.get("VYSTAK_NATS_CREDS") or None
SUBJECT = tasks_subject("vystak", "default", os.environ.get("VYSTAK_AGENT_NAME") or "assistant")

STEPS, DELETE = "Do the four steps", "Please delete the old files"
APPROVED = {"approved": True, "decided_by": "load", "note": None}
POLL_S = 0.25
PATIENCE_S = 60.0
GOING_ON = {WireStatus.RUNNING, WireStatus.PARKED}


class Broker:
    """The one connection of this process, on the loop's thread."""

    def __init__(self) -> None:
        self._thread: LoopThread | None = None
        self._nc: Client | None = None

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop."""
        return self.thread.call(work)

    @property
    def thread(self) -> LoopThread:
        """The loop's thread, started by the first user."""
        if self._thread is None:
            self._thread = LoopThread()
        return self._thread

    @property
    def nc(self) -> Client:
        """The connection, made by the first user."""
        if self._nc is None:
            self._nc = self.call(connect(NATS_URL, CREDS))
        return self._nc


BROKER = Broker()


@events.test_start.add_listener
def connect_first(environment: Environment, **_: Any) -> None:
    """Connect before the first user asks, so that no two of them do."""
    del environment
    assert BROKER.nc.is_connected


class Turn:
    """A new turn: its ids and its request."""

    def __init__(self, wish: str) -> None:
        self.turn_id = uuid.uuid4().hex
        self.subject = turn_subject(turn_base(SUBJECT), uuid.uuid4().hex, self.turn_id)
        self.request = {
            "model": "",
            "input": wish,
            "previous_response_id": None,
            "store": True,
            "stream": True,
        }


class NatsUser(User):
    """What a panel does: dispatch, ask now and then, follow to the end, decide."""

    weight = 3
    wait_time = constant(0.5)

    def on_start(self) -> None:
        """Use the shared connection."""
        self.client = TurnsClient(BROKER.nc, SUBJECT)

    @task(4)
    def four_steps(self) -> None:
        """A turn of four steps, watched from beside while it runs."""
        turn = Turn(STEPS)
        begun = time.perf_counter()
        self._dispatch(turn)
        for _ in range(2):
            gevent.sleep(POLL_S)
            self._status(turn)
        self._watch(turn, FOUR_STEPS, begun)

    @task(1)
    def park_and_resume(self) -> None:
        """A turn that asks for leave, gets it, and ends."""
        turn = Turn(DELETE)
        begun = time.perf_counter()
        self._dispatch(turn)
        with self._timed("a question after the dispatch", begun):
            self._until(turn, WireStatus.PARKED)
        decided = time.perf_counter()
        with self._timed(methods.RESUME_DETACHED):
            BROKER.call(self.client.resume_detached(turn.turn_id, APPROVED))
        self._watch(turn, DELETED, decided)

    def _dispatch(self, turn: Turn) -> None:
        with self._timed(methods.CREATE_DETACHED):
            asked = self.client.create_detached(turn.request, turn.turn_id, turn.subject)
            BROKER.call(asked)

    def _status(self, turn: Turn) -> WireStatus:
        with self._timed(methods.TURN_STATUS):
            status = BROKER.call(self.client.turn_status(turn.turn_id)).status
            if status not in GOING_ON | {WireStatus.DONE}:
                raise WrongTurnError(f"the status is {status}")
        return status

    def _until(self, turn: Turn, wanted: WireStatus) -> None:
        with gevent.Timeout(PATIENCE_S, TimeoutError(f"not {wanted} within {PATIENCE_S:g} s")):
            while self._status(turn) is not wanted:
                gevent.sleep(POLL_S)

    def _watch(self, turn: Turn, expected: Expected, since_s: float) -> None:
        """Read from the first message to the terminal event, and once more what is kept."""
        too_late = TimeoutError(f"no end within {PATIENCE_S:g} s")
        with (
            self._timed("a turn to its end, as a reader", since_s),
            gevent.Timeout(PATIENCE_S, too_late),
        ):
            BROKER.call(_to_the_end(turn.subject))
        # The event is appended first, then the status is committed.
        self._until(turn, WireStatus.DONE)
        with self._timed("a whole log, read again"):
            check(BROKER.call(read_all(BROKER.nc.jetstream(), turn.subject)), expected)

    @contextmanager
    def _timed(self, name: str, since_s: float | None = None) -> Iterator[None]:
        """Report what is done inside; a failure ends the task, not the user."""
        begun = time.perf_counter() if since_s is None else since_s
        try:
            yield
        except Exception as error:
            self._report(name, begun, error)
            raise
        # Whatever else leaves this place is the end of the test, which is nobody's result.
        self._report(name, begun, None)

    def _report(self, name: str, begun: float, trouble: Exception | None) -> None:
        self.environment.events.request.fire(
            request_type="NATS",
            name=name,
            response_time=1000 * (time.perf_counter() - begun),
            response_length=0,
            exception=trouble,
        )


class MirrorUser(HttpUser):
    """The same requests over HTTP, as a person debugs with curl."""

    weight = 1
    wait_time = constant(0.5)

    @task(4)
    def four_steps(self) -> None:
        """A turn of four steps, asked about until it is done."""
        turn = self._dispatch(STEPS)
        self._until(turn, WireStatus.DONE)

    @task(1)
    def park_and_resume(self) -> None:
        """A turn that asks for leave, gets it, and ends."""
        turn = self._dispatch(DELETE)
        self._until(turn, WireStatus.PARKED)
        self._rpc(methods.RESUME_DETACHED, {"turn_id": turn.turn_id, "resume": APPROVED})
        self._until(turn, WireStatus.DONE)

    def _dispatch(self, wish: str) -> Turn:
        turn = Turn(wish)
        ids = {"turn_id": turn.turn_id, "stream_subject": turn.subject}
        self._rpc(methods.CREATE_DETACHED, {"request": turn.request, **ids})
        return turn

    def _until(self, turn: Turn, wanted: WireStatus) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        status = WireStatus.RUNNING
        while status is not wanted:
            gevent.sleep(POLL_S)
            result = self._rpc(methods.TURN_STATUS, {"turn_id": turn.turn_id}, GOING_ON | {wanted})
            status = WireStatus(result["status"])
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not {wanted} within {PATIENCE_S:g} s")

    def _rpc(
        self, method: str, params: dict[str, Any], allowed: set[WireStatus] | None = None
    ) -> dict[str, Any]:
        """Ask; an error in the answer, or another status than these, is a failure."""
        payload = envelope.request(method, params, uuid.uuid4().hex)
        headers = {"content-type": "application/json"}
        with self.client.post(
            "/rpc", data=payload, headers=headers, name=method, catch_response=True
        ) as answer:
            body = _json(answer)
            result: dict[str, Any] | None = body.get("result")
            if answer.status_code != 200 or result is None:  # noqa: PLR2004 - HTTP's OK
                answer.failure(f"{answer.status_code}: {body.get('error')}")
                raise WrongTurnError(f"{method}: {body}")
            if allowed is not None and result["status"] not in allowed:
                answer.failure(f"the status is {result['status']}")
                raise WrongTurnError(f"{method}: {result}")
        return result


async def _to_the_end(subject: str) -> None:
    async with aclosing(follow(BROKER.nc.jetstream(), subject)) as news:
        async for _ in news:
            pass


def _json(answer: Any) -> dict[str, Any]:
    try:
        body = answer.json()
    except (RequestException, ValueError):
        return {}
    return body if isinstance(body, dict) else {}
