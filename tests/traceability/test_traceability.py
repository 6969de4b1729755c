"""The tables beside this file say which tests show what; here, that those tests exist.

A table is a TOML file of `[acceptance.N]` (an item of the acceptance list), `[scenario.WN]` (a
failure scenario) and `[rule.RN]` entries. Each has `says`, and `tests` (`path::function`) or
`later` (what is missing and what it waits for), or both. `note` says how an indirect proof is one,
`differs` where ours is meant to be otherwise, `replaced` which rule took an item's place.
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
FIELDS = {"says", "tests", "differs", "note", "later", "replaced"}
REPLACED = ROOT / "docs" / "decisions" / "0001-replaced-acceptance-items.md"


def numbers(*ranges: range) -> set[str]:
    return {str(number) for one in ranges for number in one}


SCENARIOS = [1, 2, 3, 5, 6, 8, 9, 11, 12, *range(14, 26), 28, 29, 30, 32, 33, 35, 36, 37, 40, 41]
SCENARIOS += [*range(44, 53), 54, 63]

# What each table must have a line for, no more and no less.
LINES = {
    "rules": {f"R{number}" for number in range(1, 17)},
    "acceptance": numbers(range(1, 66), range(83, 93)),
    "scenarios": {f"W{number}" for number in SCENARIOS},
    "panel": numbers(range(101, 114)) | {f"W{number}" for number in range(55, 60)},
    "containers": numbers(range(114, 121)) | {"W53", "W60", "W69"},
}


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
    assert entry.fields.get("tests") or entry.fields.get("later")
    assert set(entry.fields) <= FIELDS


@pytest.mark.parametrize("entry", entries(), ids=str)
def test_every_named_test_exists(entry: Entry) -> None:
    missing = [
        name
        for name in entry.fields.get("tests", [])
        for path, _, function in [name.partition("::")]
        if not function.startswith("test_") or function not in functions_of(ROOT / path)
    ]
    assert missing == []


@pytest.mark.parametrize("table", [path.stem for path in TABLES])
def test_a_table_has_each_of_its_lines_and_no_other(table: str) -> None:
    assert {entry.key for entry in entries() if entry.table == table} == LINES[table]


def test_the_tables_are_all_there() -> None:
    assert {"rules", "acceptance", "scenarios", "panel"} <= {path.stem for path in TABLES}


def test_what_took_the_place_of_an_item_is_decided_and_what_is_decided_is_in_the_table() -> None:
    decided = dict(
        re.findall(r"^\| (\d+) \|.*\| ([R0-9, ]+) \|$", REPLACED.read_text(), re.MULTILINE)
    )
    of_panel = decided.keys() - LINES["acceptance"]
    replaced = {e.key: e.fields["replaced"] for e in entries() if "replaced" in e.fields}

    assert of_panel <= LINES["panel"]
    assert replaced.keys() == decided.keys() - of_panel
    for key, words in replaced.items():
        assert set(re.findall(r"\bR\d+\b", decided[key])) == set(re.findall(r"\bR\d+\b", words))
        assert REPLACED.name in words
