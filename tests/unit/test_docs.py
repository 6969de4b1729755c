"""The pages say what is there: links, rules, settings, the wire, names of tests and of files."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support.distributions import DISTRIBUTIONS, ROOT
from tests.support.settings_tables import of_the_agent, of_turn_control, with_tables
from vystak_turns.core.probe import Row
from vystak_turns_rpc import events, methods
from vystak_turns_rpc.errors import ErrorCode
from vystak_turns_rpc.vocabulary import FailureCode, RefusalReason, TurnState, WireStatus

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
READMES = sorted({*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("examples/*/*.md")})
RULES = [f"R{number}" for number in range(1, 17)]
PAGE_LINES = 220
# A page may name a file of turn control without its first folders.
CODE_ROOTS = (ROOT, ROOT / "service" / "src" / "vystak_turns")

FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
NAMED_FILE = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|conf|json|md|toml|html))`")
NAMED_MODULE = re.compile(r"`(\w+\.(?:py|conf))`")
NAMED_TEST = re.compile(r"\b(test_\w+)\b(?!\.py)")


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    text = FENCED.sub("", page.read_text())
    return {slug(heading) for heading in HEADING.findall(text)}


def slug(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=shown)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCED.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        file = page.parent / name if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    missing = [
        name
        for name in NAMED_FILE.findall(text)
        if not any((root / name).exists() for root in CODE_ROOTS)
    ]
    modules = {path.name for each in DISTRIBUTIONS for path in each.source.rglob("*")}

    assert missing == []
    assert [name for name in NAMED_MODULE.findall(text) if name not in modules] == []


def test_every_test_that_a_page_names_exists() -> None:
    tests = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    named = {name for page in PAGES for name in NAMED_TEST.findall(page.read_text())}

    assert named - tests == set()
    assert len(named) > len(RULES)


def test_pages_can_be_read_in_one_go() -> None:
    long = [shown(page) for page in PAGES if len(page.read_text().splitlines()) > PAGE_LINES]

    assert long == []


def test_every_rule_is_explained_with_its_place_and_its_proof() -> None:
    sections = re.split(r"^## ", (DOCS / "rules.md").read_text(), flags=re.MULTILINE)[1:]

    assert [section.split()[0] for section in sections] == RULES
    for section in sections:
        assert re.search(r"\bKept in\b", section), section
        assert re.search(r"\bProved\s+by\b", section), section


def test_every_variable_is_among_the_operators_settings() -> None:
    page = (DOCS / "operations.md").read_text()

    missing = [name for name in (*of_turn_control(), *of_the_agent()) if f"`{name}`" not in page]

    assert missing == []


def test_the_tables_of_settings_are_those_of_the_classes() -> None:
    page = (DOCS / "operations.md").read_text()

    assert with_tables(page) == page, "run `make settings`"


def test_every_name_of_the_wire_is_on_its_page() -> None:
    page = (DOCS / "wire.md").read_text()
    constants = [value for value in vars(events).values() if isinstance(value, str)]
    types = [text for text in constants if re.match(r"(response|vystak)\.\w", text)]
    called = [value for value in vars(methods).values() if str(value).startswith("responses/")]
    words = [
        *types,
        *called,
        *methods.TurnStatusResult.model_fields,
        *methods.CreateDetachedParams.model_fields,
        *methods.ResumeDetachedParams.model_fields,
        *WireStatus,
        *FailureCode,
        *RefusalReason,
        events.HEADER_MSG_ID,
        events.HEADER_TOKEN,
        events.HEADER_EXPECTED,
    ]

    assert [word for word in words if f"`{word}`" not in page] == []
    assert [code for code in ErrorCode if str(int(code)) not in page] == []


def test_every_state_and_row_is_in_the_architecture() -> None:
    page = (DOCS / "architecture.md").read_text()
    rows = [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]

    assert rows == [row.value for row in Row]
    assert [state for state in TurnState if f"`{state}`" not in page] == []


def test_decisions_are_numbered_and_have_one_form() -> None:
    numbers = [int(page.name[:4]) for page in DECISIONS]

    assert numbers == list(range(1, len(DECISIONS) + 1))
    for page in DECISIONS:
        first, *rest = HEADING.findall(page.read_text())
        assert first.startswith(f"{int(page.name[:4])}. ")
        assert rest == ["Context", "Decision", "Consequence"]
