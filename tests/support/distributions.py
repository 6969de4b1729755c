"""The four distributions as their own pyproject.toml describes them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Distribution:
    """One folder of the repository that becomes one wheel."""

    folder: str
    package: str

    def __str__(self) -> str:
        return self.folder

    @property
    def source(self) -> Path:
        return ROOT / self.folder / "src" / self.package

    @property
    def project(self) -> dict[str, Any]:
        text = (ROOT / self.folder / "pyproject.toml").read_text()
        project: dict[str, Any] = tomllib.loads(text)["project"]
        return project

    @property
    def requirements(self) -> list[str]:
        """Those of the extras included."""
        extras = self.project.get("optional-dependencies", {})
        return [
            *self.project["dependencies"],
            *(line for extra in extras.values() for line in extra),
        ]


DISTRIBUTIONS = (
    Distribution("rpc_schema", "vystak_turns_rpc"),
    Distribution("clients", "vystak_turns_client"),
    Distribution("service", "vystak_turns"),
    Distribution("agent", "vystak_turns_agent"),
)
