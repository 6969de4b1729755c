"""The tables beside this file say which tests show what; here, that those tests exist.

A table is a TOML file of `[acceptance.N]` (an item of the acceptance list), `[scenario.WN]` (a
failure scenario) and `[rule.RN]` entries, each with `says`, `tests` (`path::function`) and maybe
`differs`.
"""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.distributions import ROOT

TABLES = sorted(Path(__file__).parent.glob("*.toml"))
KINDS = {"acceptance": r"\d+", "scenario": r"W\d+", "rule": r"R\d+"}
FIELDS = {"says", "tests", "differs"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a table."""

    table: str
    kind: str
    key: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        """Name the entry in a test's id."""
        return f"{self.table}:{self.kind}.{self.key}"


def entries() -> list[Entry]:
    return [
        Entry(path.stem, kind, key, fields)
        for path in TABLES
        for kind, table in tomllib.loads(path.read_text()).items()
        for key, fields in table.items()
    ]


@cache
def functions_of(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(path.read_text()))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in nodes if isinstance(node, kinds))


def test_there_are_tables() -> None:
    assert entries()


@pytest.mark.parametrize("entry", entries(), ids=str)
def test_an_entry_is_complete(entry: Entry) -> None:
    assert re.fullmatch(KINDS[entry.kind], entry.key)
    assert entry.fields["says"]
    assert entry.fields["tests"]
    assert set(entry.fields) <= FIELDS


@pytest.mark.parametrize("entry", entries(), ids=str)
def test_every_named_test_exists(entry: Entry) -> None:
    missing = [
        name
        for name in entry.fields["tests"]
        for path, _, function in [name.partition("::")]
        if not function.startswith("test_") or function not in functions_of(ROOT / path)
    ]
    assert missing == []


def test_the_panel_s_items_and_scenarios_are_all_there() -> None:
    found = {entry.key for entry in entries() if entry.table == "panel"}
    items = {str(number) for number in range(101, 114)}
    assert found == items | {f"W{number}" for number in range(55, 60)}
