"""`make diagram`: draws docs/state-machine.md from the core's table, by trying every fact."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from tests.support.turn_samples import (
    QUESTION,
    decided_turn,
    facts,
    findings,
    probed,
    turn_in,
    view,
)
from vystak_turns.core.facts import Fact, ImpossibleFactError
from vystak_turns.core.transitions import step
from vystak_turns.core.turn import Turn
from vystak_turns_rpc.vocabulary import TurnState

HEAD = """\
# The life of a turn

Generated from `vystak_turns.core.transitions.TABLE` by `make diagram`; a test keeps it current.
Facts that leave the state as it is are listed below the picture.

```mermaid
stateDiagram-v2
    [*] --> queued: createDetached
"""


def diagram() -> str:
    """Return the document."""
    moves, loops = _edges()
    lines = [HEAD.rstrip()]
    for (before, after), names in sorted(moves.items()):
        lines.append(f"    {before} --> {after}: {', '.join(sorted(names))}")
    lines += [f"    {state} --> [*]" for state in ("cancelled", "completed", "failed")]
    lines += ["```", "", "| State | Facts that change only what the row remembers |", "|---|---|"]
    for state in TurnState:
        if loops[state]:
            lines.append(f"| `{state}` | {', '.join(sorted(loops[state]))} |")
    return "\n".join([*lines, ""])


def _edges() -> tuple[dict[tuple[str, str], set[str]], dict[str, set[str]]]:
    moves: dict[tuple[str, str], set[str]] = defaultdict(set)
    loops: dict[str, set[str]] = defaultdict(set)
    for before, name, fact in _tries():
        try:
            after, _ = step(before, fact)
        except ImpossibleFactError:
            continue
        if after.state is before.state:
            loops[before.state].add(name)
        else:
            moves[before.state, after.state].add(name.replace(": ", " "))
    return moves, loops


def _tries() -> list[tuple[Turn, str, Fact]]:
    tries = [(turn_in(state), name, fact) for state in TurnState for name, fact in facts()]
    decided = probed(findings(view(questions=(QUESTION,))))
    tries.append((decided_turn(), "row 8: decided", decided))
    return [
        (turn, "row 4: end wanted" if _is_row_4(turn, name) else name, fact)
        for turn, name, fact in tries
    ]


def _is_row_4(turn: Turn, name: str) -> bool:
    late_rows = ("row 5", "row 6", "row 7", "row 8", "row 9", "row 10")
    return turn.state is TurnState.CANCELLING and name.startswith(late_rows)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(diagram(), encoding="utf-8")
