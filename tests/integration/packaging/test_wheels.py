"""The built wheels, not the checkout: what they hold, and that the light client is light."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from importlib.metadata import requires
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.distributions import DISTRIBUTIONS, ROOT, Distribution

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(300)]

COMMAND_TIMEOUT_S = 240
LIGHT_NEEDS = ("nats-py", "pydantic")
LIGHT_MUST_NOT_NEED = ("aiosqlite", "fastapi", "httpx", "langgraph", "rich", "typer", "uvicorn")
# Their dependencies are extras.
NOT_LIGHT = tuple(f"vystak_turns_client.{name}" for name in ("cli", "cli_screen", "http"))

IMPORT_LIGHT_CLIENT = """
import importlib, importlib.util, json, pkgutil, sys
not_light, unwanted = json.loads(sys.argv[1])
import vystak_turns_client
names = [
    module.name
    for module in pkgutil.walk_packages(vystak_turns_client.__path__, "vystak_turns_client.")
    if module.name not in not_light
]
for name in names:
    importlib.import_module(name)
present = [name for name in unwanted if importlib.util.find_spec(name)]
print(json.dumps({"imported": names, "present": present, "from": vystak_turns_client.__file__}))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folder of the repository → the wheel built from it."""
    folder = tmp_path_factory.mktemp("wheels")
    sources = [str(ROOT / distribution.folder) for distribution in DISTRIBUTIONS]
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), *sources)
    return {
        distribution.folder: next(folder.glob(f"{wheel_stem(distribution)}-*.whl"))
        for distribution in DISTRIBUTIONS
    }


@pytest.fixture(scope="module")
def clean_python(tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, Path]) -> Path:
    """An environment with the wire, the client, and what those two say that they need."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
    python = folder / "venv" / "bin" / "python"
    pins = folder / "pins.txt"
    pins.write_text(pinned(closure(LIGHT_NEEDS)))
    install = ("--python", str(python), "install", "--no-deps")
    pip(*install, "--require-hashes", "-r", str(pins))
    pip(*install, "--no-index", str(wheels["rpc_schema"]), str(wheels["clients"]))
    pip("--python", str(python), "check")
    return python


def test_the_light_client_imports_without_what_it_does_not_need(clean_python: Path) -> None:
    arguments = json.dumps([NOT_LIGHT, LIGHT_MUST_NOT_NEED])
    answer = json.loads(run(str(clean_python), "-I", "-c", IMPORT_LIGHT_CLIENT, arguments))

    wanted = {f"vystak_turns_client.{name}" for name in ("client", "reader", "fold")}
    assert wanted <= set(answer["imported"])
    assert answer["present"] == []
    assert Path(answer["from"]).is_relative_to(clean_python.parents[1])


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_a_wheel_holds_the_whole_package(
    distribution: Distribution, wheels: dict[str, Path]
) -> None:
    held = {name for name in files(wheels[distribution.folder]) if ".dist-info/" not in name}
    source = {
        str(path.relative_to(distribution.source.parent))
        for path in distribution.source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert held == source
    assert f"{distribution.package}/py.typed" in held


def test_the_service_brings_the_broker_configuration(wheels: dict[str, Path]) -> None:
    assert "vystak_turns/embedded/nats-server.conf" in files(wheels["service"])


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        ("service", "vystak-turns = vystak_turns.__main__:main"),
        ("agent", "vystak-turns-agent = vystak_turns_agent.__main__:app"),
        ("clients", "turnctl = vystak_turns_client.cli:app"),
    ],
)
def test_a_wheel_brings_its_command(folder: str, command: str, wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels[folder]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        assert command in wheel.read(name).decode().splitlines()


def files(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def wheel_stem(distribution: Distribution) -> str:
    return str(distribution.project["name"]).replace("-", "_")


def closure(names: Iterable[str]) -> set[str]:
    """The distributions and all that they need here, extras left out."""
    found: set[str] = set()
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [
                canonicalize_name(requirement.name)
                for requirement in map(Requirement, requires(name) or [])
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            ]
    return found


def pinned(names: set[str]) -> str:
    """Their lines in the compiled requirements, hashes included."""
    text = (ROOT / "requirements" / "runtime.txt").read_text()
    blocks = re.split(r"\n(?=[^\s#])", text)
    return "\n".join(
        block for block in blocks if canonicalize_name(block.partition("==")[0]) in names
    )


def pip(*arguments: str) -> None:
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout
