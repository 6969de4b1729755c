"""What linters do not check: sizes, waits, one version, requirements that any index serves."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.distributions import DISTRIBUTIONS, ROOT, Distribution

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTION_LINES = 70
MODULE_LINES = 400
COLUMNS = 100
PRAGMA = re.compile(r"  # (noqa|type: ignore).*")
CODE_FOLDERS = ("rpc_schema", "clients", "service", "agent", "examples", "load", "tests")
OTHER_CODE = (".conf", ".sql", ".sh")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def code(*suffixes: str, folders: tuple[str, ...] = CODE_FOLDERS) -> list[Path]:
    return sorted(
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes
    )


def shown(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_there_is_code_to_look_at() -> None:
    assert Path(__file__) in code(".py")
    assert DISTRIBUTIONS[0].source / "__init__.py" in code(".py")


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{shown(path, node.lineno)} {node.name}"
        for path in code(".py")
        for node in functions(path)
        if (node.end_lineno or node.lineno) - node.lineno + 1 > FUNCTION_LINES
    ]

    assert long == []


def test_no_module_holds_more_than_one_concept() -> None:
    """Files of test cases grow with their cases; what supports them does not."""
    long = {
        shown(path, lines)
        for path in code(".py")
        if not path.name.startswith("test_")
        and (lines := len(path.read_text().splitlines())) > MODULE_LINES
    }

    assert long == set()


def test_no_line_is_wider_than_a_hundred_columns() -> None:
    wide = [
        shown(path, number)
        for path in (*code(".py", *OTHER_CODE), ROOT / "Makefile")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(PRAGMA.sub("", line)) > COLUMNS
    ]

    assert wide == []


def test_tests_wait_for_signals_and_never_sleep() -> None:
    """`sleep(0)` only lets others run.

    Graphs are the tested world: their steps take time. In the simulation time is virtual.
    """
    worlds = (ROOT / "tests" / "support" / "graphs", ROOT / "tests" / "simulation")
    sleeps = [
        shown(path, node.lineno)
        for path in code(".py", folders=("tests",))
        if not any(path.is_relative_to(world) for world in worlds)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and is_sleep(node)
    ]

    assert sleeps == []


def is_sleep(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else None
    if isinstance(call.func, ast.Name):
        name = call.func.id
    return name == "sleep" and not any(
        isinstance(argument, ast.Constant) and argument.value == 0 for argument in call.args
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("time.sleep(1)", True),
        ("asyncio.sleep(delay)", True),
        ("sleep(0.1)", True),
        ("asyncio.sleep(0)", False),
        ("clock.advance(1)", False),
    ],
)
def test_a_sleep_is_told_from_a_yield(source: str, expected: bool) -> None:
    (call,) = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))

    assert is_sleep(call) is expected


def test_all_distributions_carry_one_version_and_pin_each_other_to_it() -> None:
    versions = {distribution.project["version"] for distribution in DISTRIBUTIONS}
    pins = {
        str(requirement.specifier)
        for distribution in DISTRIBUTIONS
        for requirement in map(Requirement, distribution.requirements)
        if requirement.name.startswith("vystak-turns")
    }

    assert len(versions) == 1
    assert pins == {f"=={versions.pop()}"}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_a_distribution_is_typed(distribution: Distribution) -> None:
    assert (distribution.source / "py.typed").exists()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_a_distribution_declares_everything_that_it_imports(distribution: Distribution) -> None:
    declared = {canonicalize_name(Requirement(line).name) for line in distribution.requirements}
    # Editable installs do not list their packages.
    ours = {other.package: [other.project["name"]] for other in DISTRIBUTIONS}
    providers = {**packages_distributions(), **ours}

    undeclared = {
        package
        for package in imported_packages(distribution) - {distribution.package}
        if declared.isdisjoint(map(canonicalize_name, providers.get(package, [])))
    }

    assert undeclared == set()


def imported_packages(distribution: Distribution) -> set[str]:
    """Top-level packages from outside of the standard library."""
    found: set[str] = set()
    for path in distribution.source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names


@pytest.mark.parametrize("name", ["runtime.txt", "dev.txt", "oldest-broker.txt"])
def test_compiled_requirements_are_pinned_hashed_and_without_addresses(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    pinned = re.findall(r"^(\S+)==\S+(?: ; .+)? \\\n    --hash=sha256:", text, re.MULTILINE)
    starts = re.findall(r"^[^\s#].*", text, re.MULTILINE)

    assert len(pinned) == len(starts) > 0
    assert not re.search(r"://|--(extra-)?index-url|--find-links|\bfile:| @ ", text)


def test_what_tests_run_contains_what_users_run() -> None:
    runtime, dev = (
        set(re.findall(r"^\S+==\S+", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in ("runtime.txt", "dev.txt")
    )

    assert runtime <= dev
