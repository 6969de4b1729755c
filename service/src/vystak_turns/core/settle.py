"""Did our append land? What the log's last message says after a timeout or a conflict.

JetStream answers a retried append differently from release to release (a duplicate, or a conflict
although the first copy is stored), and a timeout says nothing at all. The subject's last message
says everything: every append carries a message id of turn, seq and token, and expects the
subject's last sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from vystak_turns.core.findings import Tail, Terminal


@dataclass(frozen=True, slots=True)
class Attempted:
    """The append in question.

    `expected` is the stream_seq it was conditional on; `forced` marks the events whose meaning
    does not depend on what came before them: a rewind retracts it anyway. `needs_all` marks those
    that readers may get only with everything before them: a question, the completed turn (R3).
    """

    message_id: str
    token: int
    expected: int
    forced: bool
    first: bool
    needs_all: bool = False


@dataclass(frozen=True, slots=True)
class Landed:
    """It is in the log, at `stream_seq`."""

    stream_seq: int


@dataclass(frozen=True, slots=True)
class Retry:
    """It is not in the log; send it again, expecting `expected`."""

    expected: int


@dataclass(frozen=True, slots=True)
class Rebase:
    """A message came before it: send it with the next seq, expecting `expected`."""

    expected: int
    last_seq: int | None


@dataclass(frozen=True, slots=True)
class Moved:
    """The log is not what the plan was made for: probe again."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A driver with a higher token has written: stop quietly (R7)."""


Verdict: TypeAlias = Landed | Retry | Rebase | Moved | Overtaken


def settle(tail: Tail | None, attempted: Attempted) -> Verdict:
    """Judge an append whose outcome is unknown or refused.

    An empty subject has aged out or was purged: the expectation is 0 from then on, unless all that
    was in it must be shown again first. A message of a
    lower token is the last breath of a driver before us: a rewind goes on top of it, anything else
    was planned without it. After our own first append such a message cannot be one any more (its
    expectation would fail), so a foreign one is stepped over. A log that ends before what we know
    to be in it has lost its end (a broker without power, or brought back from a copy): what is
    missing must be shown again, so it is probed.
    """
    if tail is None:
        lost = attempted.needs_all and attempted.expected > 0
        return Moved() if lost else Retry(expected=0)
    if tail.message_id == attempted.message_id:
        return Landed(tail.stream_seq)
    if tail.stream_seq == attempted.expected:
        return Retry(attempted.expected)
    if tail.token is not None and tail.token > attempted.token:
        return Overtaken()
    if isinstance(tail.what, Terminal) or tail.stream_seq < attempted.expected:
        return Moved()
    if attempted.forced or not attempted.first:
        return Rebase(tail.stream_seq, tail.seq)
    return Moved()
