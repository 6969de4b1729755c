"""What was left behind: the stream, the threads, the steps, the journal, each read from outside."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from nats.aio.client import Client

from tests.support.checkers import Logged

STREAM: Final = "vystak-default-streams"
_GET: Final = f"$JS.API.STREAM.MSG.GET.{STREAM}"
_AT_ONCE: Final = 64
_ANSWER_S: Final = 10.0
_NO_MESSAGE: Final = 10037


@dataclass(frozen=True, slots=True)
class Stored:
    """One message as the broker has it; `at` in seconds since 1970, by the broker's clock."""

    stream_seq: int
    at: float
    token: int
    logged: Logged


@dataclass(frozen=True, slots=True)
class StepRun:
    """One run of a step: in which process, from when to when (`None`: it did not end)."""

    label: str
    pid: int
    started_at: float
    completed_at: float | None


async def read_stream(broker: Client) -> Mapping[str, list[Stored]]:
    """Return every message of the stream by subject."""
    info = await _ask(broker, f"$JS.API.STREAM.INFO.{STREAM}", {})
    last = int(info["state"]["last_seq"])
    found: dict[str, list[Stored]] = defaultdict(list)
    for first in range(1, last + 1, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, last + 1))
        answers = await asyncio.gather(*(_ask(broker, _GET, {"seq": n}) for n in numbers))
        for answer in answers:
            message = answer.get("message")
            assert message is not None, f"the stream lost a message: {answer}"
            found[message["subject"]].append(_stored(message))
    return found


async def read_subject(broker: Client, subject: str) -> list[Stored]:
    """Return every message of one subject."""
    found: list[Stored] = []
    while True:
        start = found[-1].stream_seq + 1 if found else 1
        answer = await _ask(broker, _GET, {"seq": start, "next_by_subj": subject})
        if answer.get("error", {}).get("err_code") == _NO_MESSAGE:
            return found
        found.append(_stored(answer["message"]))


def read_thread(sessions_db: Path, thread_id: str) -> list[BaseMessage]:
    """Return a thread's messages, and what finished tasks of its unfinished step returned."""
    with closing(sqlite3.connect(sessions_db)) as connection:
        found = SqliteSaver(connection).get_tuple({"configurable": {"thread_id": thread_id}})
    assert found is not None, f"thread {thread_id} has no checkpoint"
    messages: list[BaseMessage] = list(found.checkpoint["channel_values"]["messages"])
    writes = found.pending_writes or []
    asking = {task for task, channel, _ in writes if channel == "__interrupt__"}
    for task, channel, value in writes:
        if channel == "messages" and task not in asking:
            messages += value
    return messages


def part_of_turn(thread: Sequence[BaseMessage], tag: str) -> list[BaseMessage]:
    """Return what the agent said and did after the one input with this tag."""
    inputs = [place for place, message in enumerate(thread) if message.type == "human"]
    own = [place for place in inputs if str(thread[place].text).endswith(f"#{tag}")]
    assert len(own) == 1, f"the input of {tag} is {len(own)} times on its thread"
    later = [place for place in inputs if place > own[0]]
    return list(thread[own[0] + 1 : later[0] if later else len(thread)])


def read_steps(path: Path) -> list[StepRun]:
    """Return every run of every step, in the order in which they began."""
    runs: list[StepRun] = []
    for line in path.read_text().splitlines():
        at, pid, what, label = line.split()
        if what == "started":
            runs.append(StepRun(label, int(pid), float(at), None))
            continue
        place = next(
            place
            for place in range(len(runs) - 1, -1, -1)
            if (runs[place].label, runs[place].pid) == (label, int(pid))
            and runs[place].completed_at is None
        )
        runs[place] = StepRun(label, int(pid), runs[place].started_at, float(at))
    return runs


def read_journal(turns_db: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the journal's rows by turn, each with its boundaries."""
    with closing(sqlite3.connect(turns_db)) as connection:
        connection.row_factory = sqlite3.Row
        rows = [dict(row) for row in connection.execute("SELECT * FROM detached_turns")]
        for row in rows:
            query = "SELECT checkpoint_id, seq FROM turn_boundaries WHERE turn_id = ? ORDER BY seq"
            row["boundaries"] = [tuple(b) for b in connection.execute(query, [row["turn_id"]])]
    return {row["turn_id"]: row for row in rows}


async def _ask(broker: Client, what: str, body: Mapping[str, Any]) -> dict[str, Any]:
    answer = await broker.request(what, json.dumps(body).encode(), timeout=_ANSWER_S)
    found: dict[str, Any] = json.loads(answer.data)
    return found


def _stored(message: Mapping[str, Any]) -> Stored:
    body = json.loads(base64.b64decode(message["data"]))
    assert set(body) == {"seq", "event"}, f"a message has {sorted(body)}"
    return Stored(
        message["seq"],
        _seconds(message["time"]),
        _token(base64.b64decode(message.get("hdrs", ""))),
        Logged(body["seq"], body["event"]),
    )


def _token(headers: bytes) -> int:
    for line in headers.decode().splitlines():
        name, _, value = line.partition(":")
        if name == "Vystak-Token":
            return int(value)
    raise AssertionError(f"a message without a token: {headers!r}")


def _seconds(text: str) -> float:
    # RFC 3339 with up to nine digits; Python reads six.
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = datetime.fromisoformat(f"{whole}+00:00").timestamp()
    return seconds + float(f"0.{fraction or 0}")
