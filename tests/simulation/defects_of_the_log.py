"""Defects of how the log is written: its fence, its boundaries, its rewinds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.patches import Patch
from vystak_turns.app import log_writer
from vystak_turns.app.driver import Driver
from vystak_turns.app.executor import Executor
from vystak_turns.app.log_writer import LogWriter
from vystak_turns.core import probe
from vystak_turns.core.findings import Findings
from vystak_turns.core.settle import Landed, Moved, Overtaken, Rebase, Retry
from vystak_turns.core.settle import settle as settle_of_the_core
from vystak_turns.core.turn import Boundary, Turn
from vystak_turns.ports import Marker
from vystak_turns_rpc import events


def no_fence() -> list[Patch]:
    """Expect whatever is there: append without a fence."""
    honest = LogWriter._message

    def message(self: LogWriter, seq: int, event_json: bytes) -> Any:
        subject = self._log.subjects.get(self._subject)  # type: ignore[attr-defined]
        retained = subject.retained() if subject else []
        last = retained[-1].number if retained else 0
        return replace(honest(self, seq, event_json), expected_stream_seq=last)

    return [(LogWriter, "_message", message)]


def token_ignored() -> list[Patch]:
    """Take every driver's message for a lower one's, and go on top of it."""
    honest = settle_of_the_core

    def settle(tail: Any, attempted: Any) -> Any:
        verdict = honest(tail, attempted)
        overtaken = isinstance(verdict, Overtaken | Moved) and tail is not None
        return Rebase(tail.stream_seq, tail.seq) if overtaken else verdict

    return [(log_writer, "settle", settle)]


def timeout_means_lost() -> list[Patch]:
    """After a timeout send the event again without looking whether it landed."""
    honest = settle_of_the_core

    def settle(tail: Any, attempted: Any) -> Any:
        verdict = honest(tail, attempted)
        if isinstance(verdict, Landed):
            return Rebase(tail.stream_seq, tail.seq)
        return verdict

    return [(log_writer, "settle", settle)]


def timeout_means_landed() -> list[Patch]:
    """Take a timeout for an acknowledgement."""
    honest = settle_of_the_core

    def settle(tail: Any, attempted: Any) -> Any:
        verdict = honest(tail, attempted)
        return Landed(attempted.expected) if isinstance(verdict, Retry) else verdict

    return [(log_writer, "settle", settle)]


def seqs_begin_again() -> list[Patch]:
    """After a lost log begin with the last seq of the journal instead of the reserved limit."""

    def seq_after(tail: Any, turn: Turn) -> int:
        if tail is not None and tail.seq is not None:
            return int(tail.seq) + 1
        return 0

    return [(LogWriter, "_seq_after", staticmethod(seq_after))]


def seq_from_journal() -> list[Patch]:
    """Count on from the journal's last_seq, which lags behind the log."""

    def seq_after(_tail: Any, turn: Turn) -> int:
        return turn.last_seq + 1

    return [(LogWriter, "_seq_after", staticmethod(seq_after))]


def emptied_log_unnoticed() -> list[Patch]:
    """Append questions and results to a log that has lost what came before."""

    async def lost(_self: Executor) -> bool:
        return False

    return [(Executor, "_lost_its_start", lost)]


def boundary_by_arrival() -> list[Patch]:
    """Record a marker at the seq of the event that comes next."""

    async def mark(self: Executor, checkpoint_id: str) -> None:
        self._pending_mark = checkpoint_id  # type: ignore[attr-defined]

    honest_publish, honest_mark = Executor._publish, Executor._mark

    async def publish(self: Executor, event: Any) -> Any:
        fact = await honest_publish(self, event)
        pending = getattr(self, "_pending_mark", None)
        if pending is not None and fact is None:
            del self._pending_mark  # type: ignore[attr-defined]
            await honest_mark(self, pending)
        return fact

    return [(Executor, "_mark", mark), (Executor, "_publish", publish)]


def boundary_too_early() -> list[Patch]:
    """Record a boundary before the event under it is acknowledged: one seq ahead."""
    honest = Executor._take_in

    async def take_in(self: Executor, item: Any) -> Any:
        if isinstance(item, Marker):
            self._writer._next_seq += 1
            try:
                return await honest(self, item)
            finally:
                self._writer._next_seq -= 1
        return await honest(self, item)

    return [(Executor, "_take_in", take_in)]


def boundaries_stay() -> list[Patch]:
    """Rewind without deleting the boundaries above."""

    async def cut(self: Executor, target: Boundary | None) -> None:
        return

    return [(Executor, "_cut", cut)]


def no_rewind() -> list[Patch]:
    """Catch up without sending readers back first."""

    async def rewind(self: Executor, target: Boundary | None) -> None:
        return

    return [(Executor, "rewind", rewind)]


def rewind_to_newest_only() -> list[Patch]:
    """Take the newest boundary although the log has lost its start."""

    def last(turn: Turn, findings: Findings, *, whole: bool) -> Boundary | None:
        return findings.boundaries[-1] if findings.boundaries else None

    return [(probe, "last_good_boundary", last)]


def rollback_ignored() -> list[Patch]:
    """Leave text with readers that the agent took back."""

    async def roll_back(_self: Executor, _checkpoint_id: str | None) -> None:
        return

    return [(Executor, "_roll_back", roll_back)]


def created_again() -> list[Patch]:
    """Publish response.created of every stream."""
    return [(events, "RESPONSE_CREATED", "response.never")]


def superseded_unnoticed() -> list[Patch]:
    """Append to a log that was just read, whoever wrote to it last."""

    def check(_self: Driver, _turn: Turn, _ends: Any) -> None:
        return

    return [(Driver, "_check_not_superseded", check)]


def emptied_log_ours() -> list[Patch]:
    """Go on in an emptied log without asking the journal whose it is."""

    async def check(_self: LogWriter) -> None:
        return

    return [(LogWriter, "_check_still_named", check)]
