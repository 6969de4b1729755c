from __future__ import annotations

import json

from tests.support.distributions import DISTRIBUTIONS, ROOT
from vystak_turns.adapters.http_api import openapi_text

DOCUMENT = ROOT / "openapi" / "turns.openapi.json"
VERSION = DISTRIBUTIONS[0].project["version"]


def test_the_document_in_the_repository_is_the_one_of_the_app() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == openapi_text(VERSION), "run `make schema`"


def test_every_route_says_what_it_answers() -> None:
    paths = json.loads(DOCUMENT.read_text(encoding="utf-8"))["paths"]

    assert set(paths) == {"/healthz", "/readyz", "/rpc", "/v1/turns/{turn_id}"}
    for route in paths.values():
        for operation in route.values():
            assert operation["summary"]
            assert operation["responses"]["200"]["content"]["application/json"]["schema"]
