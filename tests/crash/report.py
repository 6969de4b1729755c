"""The table that a run ends with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table

from tests.crash.judge import Wrong
from tests.crash.processes import AGENTS
from tests.crash.run import Result
from tests.crash.storm import Kind


def table_of(result: Result) -> Table:
    """Return the table of a run."""
    options = result.options
    title = f"seed {options.seed}, {options.turns} turns, {options.at_once} at once"
    table = Table("what", "how many", title=title)
    for name, value in rows(result):
        table.add_row(name, value)
    return table


def rows(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the lines of the table."""
    cases = result.cases
    ends = Counter(str(case.row["state"]) if case.row else "lost" for case in cases)
    yield "turns", f"{len(cases)} ({', '.join(f'{n} {end}' for end, n in sorted(ends.items()))})"
    yield "time", f"{result.took_s:.0f} s"
    yield from _troubles(result)
    yield "re-drives", str(sum(int(case.row["redrives"]) for case in cases if case.row))
    yield "rewinds read", str(sum(_rewinds(case.log) for case in cases))
    yield "steps run", str(sum(len(case.runs) for case in cases))
    yield (
        "steps run twice (in flight when the agent was killed)",
        str(sum(case.reruns for case in cases)),
    )
    yield "parks looked at", str(result.parks_looked_at)
    yield "events", str(sum(len(case.log) for case in cases))
    found = Counter(violation.wrong for violation in result.violations)
    yield "losses", str(found[Wrong.LOSS])
    yield "duplicates", str(found[Wrong.DUPLICATE])
    yield "divergences", str(found[Wrong.DIVERGENCE])
    yield "other broken rules", str(found[Wrong.OTHER] + found[Wrong.STATUS])
    yield from _answers(result)
    yield "how late the crowd's own clock was: p99 and longest", _times(result.lag_s, 0.99, 1)
    yield "agent's health to first re-driven event, p50, p99", _times(result.redrive_s, 0.5, 0.99)
    yield "turns of which these were measured", str(len(result.redrive_s))


def _answers(result: Result) -> Iterator[tuple[str, str]]:
    yield "turnStatus while turn control could be reached", _answered(result.status_s, result.slow)
    yield "the same: p50, p99 and slowest", _times(result.status_s, 0.5, 0.99, 1)
    yield (
        "turnStatus while it was killed, stopped or cut off",
        _answered(result.status_in_storm_s, result.unanswered),
    )
    yield "the same: slowest answer", _times(result.status_in_storm_s, 1)


def _answered(answers: Sequence[float], silences: int) -> str:
    return f"{len(answers)} answers, {silences} without one"


def _troubles(result: Result) -> Iterator[tuple[str, str]]:
    for kind in Kind:
        parts = Counter[str]()
        for (part, of_kind), count in result.storm.counts.items():
            if of_kind is kind:
                parts["agents" if part in AGENTS else part] += count
        told = ", ".join(f"{part} {count}" for part, count in sorted(parts.items()))
        yield kind.value, f"{parts.total()} ({told})" if told else "0"


def _rewinds(log: Sequence[object]) -> int:
    return sum("vystak.turn.rewind" in str(stored) for stored in log)


def _times(found: Sequence[float], *shares: float) -> str:
    if not found:
        return "-"
    ordered = sorted(found)
    picked = [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in shares]
    return ", ".join(f"{length_s:.3f} s" for length_s in picked)
