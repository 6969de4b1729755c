"""`make crash N=500`: real processes are killed, stopped and cut off while turns run.

make crash N=500                     a run with seed 1
make crash N=500 ARGS="--seed 7"     another storm; a seed fixes what happens, not the timing

The exit code is 1 if a rule was broken; the evidence is then in the folder that is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from tests.crash.report import table_of
from tests.crash.run import Options, run, write_evidence
from tests.crash.storm import troubles


def main() -> int:
    """Make one run."""
    arguments = _parser().parse_args()
    console = Console(width=100)
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="vystak-crash-")) / "stack"
    begun_s = time.monotonic()

    def say(words: str) -> None:
        console.print(f"{time.monotonic() - begun_s:6.1f} {words}", markup=False, highlight=False)

    options = Options(
        folder,
        arguments.turns,
        arguments.seed,
        arguments.at_once,
        troubles(arguments.seed, arguments.gap),
        arguments.longest,
        say,
    )
    result = asyncio.run(run(options))
    console.print(table_of(result))
    evidence = write_evidence(result, folder)
    if not result.violations:
        if arguments.folder is None:
            shutil.rmtree(folder.parent)
        return 0
    for violation in result.violations[:20]:
        words = violation.words[:400]
        console.print(f"{violation.turn_id} {violation.wrong}: {words}", style="red", markup=False)
    console.print(f"{len(result.violations)} violations; evidence: {evidence}", markup=False)
    console.print(f"logs of all processes: {folder / 'logs'}", markup=False)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make crash",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=200, help="turns at the same time [200]")
    gap = "mean seconds between troubles [1.2]"
    parser.add_argument("--gap", type=float, default=1.2, help=gap)
    parser.add_argument(
        "--longest", type=float, default=900.0, help="seconds after which the storm ends [900]"
    )
    parser.add_argument("--folder", help="keep everything here [a folder for temporary files]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
