"""`make load`: a whole stack on this machine, and locust on it.

    python load/run.py --users 30 --time 60s [--ui] [--record]

The stack is NATS, turn control and the example agent with short steps, in a folder of its own; it
is stopped at the end. Exit code 1 when there was a single failure. `--record` writes the table
into docs/performance.md.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- make load -->", "<!-- end of make load -->"

COLUMNS = ("Request Count", "Failure Count", "Requests/s", "50%", "95%", "99%", "100%")
HEADS = ("Over", "What", "Count", "Failures", "per s", "p50 ms", "p95 ms", "p99 ms", "max ms")


async def main(arguments: argparse.Namespace) -> int:
    """Start the stack, run locust on it, print its table; returns locust's exit code."""
    from vystak_turns.embedded.example import example_agent  # noqa: PLC0415
    from vystak_turns.embedded.stack import LocalStack, StackOptions  # noqa: PLC0415

    agent = example_agent(ROOT)
    options = StackOptions(agent_command=agent.words)
    environment = {**agent.environment, "STEP_SECONDS": str(arguments.step_seconds)}
    options = replace(options, agent_environment=environment)
    with tempfile.TemporaryDirectory(prefix="vystak-load-") as folder:
        async with LocalStack(Path(folder), options) as stack:
            await stack.wait_ready()
            words = _locust(arguments, stack.http_url, Path(folder))
            process = await asyncio.create_subprocess_exec(
                *words,
                cwd=ROOT,
                env={**os.environ, **stack.panel_environment, "PYTHONPATH": str(ROOT)},
            )
            code = await process.wait()
        if arguments.ui:
            return code
        table = markdown(Path(folder) / "seen_stats.csv")
        troubles = (Path(folder) / "seen_exceptions.csv").read_text().splitlines()[1:]
    # A user whose task broke between two requests has failed as well.
    print("\n".join(troubles[:20]), file=sys.stderr)
    code = code or int(bool(troubles))
    print(f"\n{table}")
    if arguments.record and code == 0:
        record(table, arguments)
    return code


def _locust(arguments: argparse.Namespace, host: str, folder: Path) -> list[str]:
    words = [sys.executable, "-m", "locust", "-f", "load/locustfile.py", "--host", host]
    words += ["--users", str(arguments.users), "--spawn-rate", str(max(1, arguments.users // 5))]
    if arguments.ui:
        return [*words, "--web-host", "127.0.0.1"]
    words += ["--headless", "--run-time", arguments.time, "--stop-timeout", "60"]
    return [*words, "--only-summary", "--csv", str(folder / "seen"), "--loglevel", "WARNING"]


def markdown(statistics: Path) -> str:
    """Return locust's statistics by method as a table."""
    with statistics.open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [HEADS, ("---", "---", *["---:"] * len(COLUMNS))]
    for row in rows:
        over = {"POST": "HTTP", "": ""}.get(row["Type"], row["Type"])
        lines.append((over, row["Name"], *(_number(row[column]) for column in COLUMNS)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(text: str) -> str:
    value = float(text)
    return f"{value:.1f}" if value < 10 and value != int(value) else f"{value:.0f}"  # noqa: PLR2004


def record(table: str, arguments: argparse.Namespace) -> None:
    """Put the table into docs/performance.md, between its marks."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{PAGE}: the marks {BEGIN} and {END} are missing")
    day = datetime.now(UTC).date()
    seen = (
        f"{arguments.users} users for {arguments.time}, steps of {arguments.step_seconds:g} s, "
        f"{day}, on {machine()}."
    )
    PAGE.write_text(f"{before}{BEGIN}\n{seen}\n\n{table}\n{END}{after}", encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")


def machine() -> str:
    """Say what this was measured on."""
    model = ""
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        names = [x for x in cpu_info.read_text().splitlines() if x.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else ""
    load_1_min = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores ({model or platform.machine()}), {platform.system()}, "
        f"Python {platform.python_version()}; load average at the end {load_1_min:.1f}"
    )


def arguments_of(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="load/run.py", description=__doc__)
    parser.add_argument("--users", type=int, default=30)
    parser.add_argument("--time", default="60s", help="such as 60s or 5m")
    parser.add_argument("--step-seconds", type=float, default=0.05)
    parser.add_argument("--ui", action="store_true", help="locust's web page, until Ctrl-C")
    parser.add_argument("--record", action="store_true", help="write docs/performance.md")
    return parser.parse_args(words)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(arguments_of(sys.argv[1:]))))
    except KeyboardInterrupt:
        # The stack has been stopped; this is how the web page is left.
        sys.exit(128 + signal.SIGINT)
