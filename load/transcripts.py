"""What a reader must have seen in the end, by the script of the example agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vystak_turns_client.fold import Outcome, fold
from vystak_turns_client.retained import LoggedMessage
from vystak_turns_rpc.events import is_terminal

LABELS = ("one", "two", "three", "four")


class WrongTurnError(AssertionError):
    """A turn did not do, or did not show, what it had to."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The words of a whole turn, and the results of its tool calls."""

    words: str
    results: tuple[str, ...]


FOUR_STEPS = Expected(
    "".join(f"I start step {label} now. " for label in LABELS) + "All four steps are done.",
    tuple(f"step {label} is done" for label in LABELS),
)
_FILES = "report-2019.pdf, report-2020.pdf, draft-old.txt"
DELETED = Expected(
    "3 old files are no longer needed. I ask before I delete them. "
    f"This is what came of it: deleted {_FILES}",
    (f"deleted {_FILES}",),
)


def check(log: Sequence[LoggedMessage], expected: Expected) -> None:
    """Compare a finished turn's whole log with what it must show; raises WrongTurnError."""
    seqs = [message.seq for message in log]
    if seqs != list(range(len(seqs))):
        raise WrongTurnError(f"sequence numbers are {seqs}")
    ends = [m.seq for m in log if is_terminal(str(m.event.get("type")))]
    if ends != seqs[-1:]:
        raise WrongTurnError(f"terminal events at {ends} of {len(seqs)} messages")
    transcript = fold(log)
    if transcript.end is None or transcript.end.outcome is not Outcome.COMPLETED:
        raise WrongTurnError(f"ended as {transcript.end}")
    results = tuple(call.output for call in transcript.tool_calls)
    if (transcript.text, results) != (expected.words, expected.results):
        raise WrongTurnError(f"the transcript is {transcript.text!r}, {results}")
