"""Judges every turn by the rules, from what was left behind. Nothing of the service is used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from langchain_core.messages import BaseMessage

from tests.crash.evidence import StepRun, Stored
from tests.crash.flows import LABELS
from tests.crash.panel import ENDED, Seen
from tests.crash.processes import Life
from tests.support import checkers
from tests.support.graphs.storm import ERROR
from vystak_turns_client.fold import Text, fold
from vystak_turns_rpc.vocabulary import FailureCode, WireStatus

_WORD = re.compile(r"word-[0-9a-f]{10}")


class Wrong(StrEnum):
    """What a broken rule means to the person who reads the turn."""

    LOSS = "loss"
    DUPLICATE = "duplicate"
    DIVERGENCE = "divergence"
    STATUS = "status"
    OTHER = "other rule"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule."""

    turn_id: str
    wrong: Wrong
    words: str


@dataclass(frozen=True, slots=True)
class Case:
    """All that is known of a turn; `thread`: its part of the thread, `None` if there is none."""

    seen: Seen
    log: Sequence[Stored]
    thread: Sequence[BaseMessage] | None
    runs: Sequence[StepRun]
    row: Mapping[str, Any] | None
    lives: Mapping[int, Life]

    @property
    def logged(self) -> list[checkers.Logged]:
        """The log as the checkers take it."""
        return [stored.logged for stored in self.log]

    @property
    def completed(self) -> bool:
        """Whether the turn ended well."""
        return bool(self.log) and self.log[-1].logged.type == "response.completed"

    @property
    def reruns(self) -> int:
        """How many runs of steps were not the first of their step."""
        return len(self.runs) - len({run.label for run in self.runs})


Found = Iterator[tuple[Wrong, str]]


def violations(case: Case) -> Iterator[Violation]:
    """Yield every broken rule."""
    if case.row is None:
        yield Violation(case.seen.turn_id, Wrong.LOSS, "R5: acknowledged, but not in the journal")
        return
    for rule in _RULES:
        try:
            for wrong, words in rule(case):
                yield Violation(case.seen.turn_id, wrong, words)
        except AssertionError as error:
            yield Violation(case.seen.turn_id, Wrong.OTHER, f"{rule.__name__}: {error}")


def shown_is_not_done(
    log: Sequence[checkers.Logged], thread: Sequence[BaseMessage]
) -> tuple[Wrong, str] | None:
    """Compare what readers see with what the thread holds (R3); `None`: they agree."""
    try:
        checkers.check_shown_is_done(log, thread)
    except AssertionError as error:
        return _kind_of_difference(log, thread), f"R3: {error}"
    return None


def _kind_of_difference(log: Sequence[checkers.Logged], thread: Sequence[BaseMessage]) -> Wrong:
    page = checkers.page_of(log)
    outputs = sum(len(call.outputs) for call in page.calls)
    done = sum(message.type == "tool" for message in thread)
    said = sum(len(str(message.text)) for message in thread if message.type == "ai")
    if outputs > done or len(page.text) > said:
        return Wrong.DUPLICATE
    if outputs < done or len(page.text) < said:
        return Wrong.LOSS
    return Wrong.DIVERGENCE


def _what_the_panel_saw(case: Case) -> Found:
    for words in case.seen.wrong:
        yield Wrong.STATUS if words.startswith("status") else Wrong.OTHER, words


def _one_end(case: Case) -> Found:
    """R1, R5: the scripted end, once, the same in log and journal."""
    step = case.seen.step
    assert case.row is not None
    if not any(stored.logged.type in checkers.TERMINAL for stored in case.log):
        yield Wrong.LOSS, f"R5: no terminal event; the journal says {case.row['state']}"
        return
    # A result is faster than a cancel when its terminal event is in the log.
    done = step.ends is WireStatus.DONE or (step.code == FailureCode.CANCELLED and case.completed)
    checkers.check_one_end(case.logged, "response.completed" if done else "response.failed")
    status = WireStatus.DONE if done else WireStatus.FAILED
    if case.row["status"] != status:
        yield Wrong.STATUS, f"R1: log {case.log[-1].logged.type}, journal {case.row['status']}"
    if not done:
        error = case.log[-1].logged.event["response"]["error"]
        code, words = error.get("code", FailureCode.GRAPH_ERROR), error["message"]
        if code != step.code or (code == FailureCode.GRAPH_ERROR and ERROR not in words):
            yield Wrong.OTHER, f"failed with {error}, expected {step.code}"


def _sequence(case: Case) -> Found:
    """R2 and R7."""
    checkers.check_sequence(case.logged)
    for before, after in pairwise(case.log):
        if after.token < before.token:
            yield Wrong.OTHER, f"R7: an older driver wrote seq {after.logged.seq}"


def _shown_is_done(case: Case) -> Found:
    """R3, for turns that completed."""
    if not case.completed:
        return
    if case.thread is None:
        yield Wrong.LOSS, "R5: completed, but there is no thread"
        return
    difference = shown_is_not_done(case.logged, case.thread)
    if difference is not None:
        yield difference
        return
    checkers.check_whole_reply(case.logged, case.thread)
    if case.seen.tag not in checkers.page_of(case.logged).text:
        yield Wrong.DIVERGENCE, "R3: the words are those of another turn"


def _reader_saw_the_log(case: Case) -> Found:
    """What came to a reader, through all restarts, is the log; and it folds to the same."""
    if case.seen.step.leave_parked:
        return
    read = [(message.seq, message.stream_seq) for message in case.seen.read]
    log = [(stored.logged.seq, stored.stream_seq) for stored in case.log]
    if read != log:
        missing, extra = sorted(set(log) - set(read)), sorted(set(read) - set(log))
        yield Wrong.DIVERGENCE, f"the reader lacks {missing}, and has {extra} besides"
        return
    page, shown = checkers.page_of(case.logged), fold(case.seen.read)
    calls = [(call.call_id, tuple(call.outputs)) for call in page.calls]
    folded = [(c.call_id, () if c.output is None else (c.output,)) for c in shown.tool_calls]
    texts = [item.text for item in page.items if isinstance(item, checkers.Said)]
    if calls != folded or texts != [i.text for i in shown.items if isinstance(i, Text)]:
        yield Wrong.DIVERGENCE, "the reader's fold differs"


def _steps_once(case: Case) -> Found:
    """R4: only a step that was in flight when its agent was killed has run again."""
    order = {f"{case.seen.tag}.{label}": place for place, label in _places(case)}
    reached = -1
    last: dict[str, StepRun] = {}
    for run in case.runs:
        if run.label not in order:
            yield Wrong.OTHER, f"R4: step {run.label} is not of this turn"
            continue
        if order[run.label] < reached:
            yield Wrong.DUPLICATE, f"R4: step {run.label} ran again after a later one"
        reached = max(reached, order[run.label])
        if run.label in last:
            yield from _again(run, last[run.label], case.lives)
        last[run.label] = run
    if case.completed:
        done = {run.label for run in case.runs if run.completed_at is not None}
        if done != set(order):
            yield Wrong.LOSS, f"R4: the steps {sorted(set(order) - done)} did not take effect"


def _places(case: Case) -> Iterator[tuple[int, str]]:
    for place, together in enumerate(LABELS[case.seen.step.agent]):
        for label in together:
            yield place, label


def _again(run: StepRun, before: StepRun, lives: Mapping[int, Life]) -> Found:
    life = lives.get(before.pid)
    if life is None or run.pid == before.pid:
        yield Wrong.DUPLICATE, f"R4: step {run.label} ran again while its agent lived"
    elif life.code == 0:
        yield Wrong.DUPLICATE, f"R12: step {run.label} ran again after an orderly stop"
    elif run.started_at < life.ended_at and before.completed_at is None:
        # Noticed late is not died late: only what a living process does counts.
        yield Wrong.DUPLICATE, f"R5: step {run.label} ran twice at the same time"


def _input_once(case: Case) -> Found:
    """R5: `part_of_turn` has found the input exactly once; a dispatch twice is one turn."""
    if case.thread is None and case.runs:
        yield Wrong.LOSS, "R5: steps ran, but the input is not on the thread"


def _decisions(case: Case) -> Found:
    """R6: of the decisions of a question one wins, and it alone reaches the graph, once."""
    decided = case.seen.decided
    for generation, count in Counter(d.generation for d in decided if d.acknowledged).items():
        if count > 1:
            yield Wrong.OTHER, f"R6: {count} decisions of question {generation} were accepted"
    if not case.completed or case.thread is None:
        return
    told = "".join(str(message.text) for message in case.thread if message.type == "ai")
    reached = Counter(_WORD.findall(told))
    if sum(reached.values()) != case.seen.step.questions or any(n > 1 for n in reached.values()):
        yield Wrong.OTHER, f"R6: the graph was told {dict(reached)}"
    for decision in decided:
        if decision.acknowledged is True and decision.value not in reached:
            yield Wrong.LOSS, f"R6: an accepted decision did not arrive: {decision}"
        if decision.acknowledged is False and decision.value in reached:
            yield Wrong.OTHER, f"R6: a refused decision arrived: {decision}"
    if stray := set(reached) - {decision.value for decision in decided}:
        yield Wrong.OTHER, f"R6: nobody decided {sorted(stray)}"


def _true_status(case: Case) -> Found:
    """R8: after the end the status is final, and it never runs ahead of the log."""
    answers = [poll.answer for poll in case.seen.polls if poll.answer is not None]
    for before, after in pairwise(answers):
        if before.status in ENDED and after.status is not before.status:
            yield Wrong.STATUS, f"R8: {before.status} became {after.status}"
    ended = next((p for p in case.seen.polls if p.answer and p.answer.status in ENDED), None)
    if ended is not None and case.log and ended.asked_at + ended.took_s < case.log[-1].at:
        yield Wrong.STATUS, "R1: the status was final before the terminal event"


_RULES: tuple[Callable[[Case], Found], ...] = (
    _what_the_panel_saw,
    _one_end,
    _sequence,
    _shown_is_done,
    _reader_saw_the_log,
    _steps_once,
    _input_once,
    _decisions,
    _true_status,
)
