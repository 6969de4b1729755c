"""The volume at /data: acceptance items 114 to 116, scenario W69."""

from __future__ import annotations

from typing import Any

import pytest

from vystak_turns import volumes
from vystak_turns.volumes import DeclarationError

SQLITE, POSTGRES = {"engine": "sqlite"}, {"engine": "postgres"}


def volume_of(**declared: Any) -> str:
    agent = {"name": "shop", **declared}
    return volumes.data_volume("shop", volumes.dependencies_of(agent))


def test_an_agent_that_declares_nothing_gets_a_volume_of_its_own() -> None:
    assert volume_of() == "vystak-agent-shop-data"


@pytest.mark.parametrize("nothing", [None, []])
def test_what_is_declared_as_nothing_claims_nothing(nothing: Any) -> None:
    assert volume_of(sessions=None, services=nothing) == "vystak-agent-shop-data"


def test_a_declared_sqlite_sessions_store_wins() -> None:
    assert volume_of(sessions=SQLITE) == "vystak-data-sessions"


def test_so_does_a_sqlite_memory() -> None:
    assert volume_of(memory=SQLITE) == "vystak-data-memory"


def test_so_does_a_sqlite_service_by_its_name() -> None:
    services = [{"name": "cache", **POSTGRES}, {"name": "learning", **SQLITE}]

    assert volume_of(services=services) == "vystak-data-learning"


def test_a_dependency_may_name_its_volume() -> None:
    assert volume_of(sessions={**SQLITE, "name": "s", "volume": "kept"}) == "kept"


@pytest.mark.parametrize("engine", ["postgres", "redis", "Postgres"])
def test_an_engine_with_a_server_of_its_own_claims_nothing(engine: str) -> None:
    declared = {"name": "x", "engine": engine}

    assert volume_of(sessions=declared, services=[declared]) == "vystak-agent-shop-data"


def test_sqlite_beside_postgres_claims_for_itself() -> None:
    assert volume_of(sessions=POSTGRES, memory=SQLITE) == "vystak-data-memory"


def test_several_sqlite_dependencies_share_the_first_ones_volume() -> None:
    declared = {"memory": SQLITE, "sessions": SQLITE, "services": [{"name": "x", **SQLITE}]}

    assert volume_of(**declared) == "vystak-data-sessions"


def test_type_is_the_older_word_for_engine() -> None:
    assert volume_of(sessions={"type": "SQLite"}) == "vystak-data-sessions"


def test_names_that_contain_each_other_are_different_volumes() -> None:
    (longer,) = volumes.dependencies_of(
        {"memory": {**SQLITE, "volume": "vystak-agent-shop-data-2"}}
    )

    assert volumes.data_volume("shop", [longer]) == "vystak-agent-shop-data-2"
    assert volumes.data_volume("shop", []) == "vystak-agent-shop-data"


def test_the_fragment_has_one_mount_at_data_in_each_service_and_makes_the_volume() -> None:
    fragment = volumes.fragment("v", ["agent", "turns"])

    mount = {"type": "volume", "source": "v", "target": "/data"}
    assert fragment == {
        "services": {"agent": {"volumes": [mount]}, "turns": {"volumes": [mount]}},
        "volumes": {"v": {"name": "v"}},
    }


def test_the_only_agent_of_a_file_needs_no_name() -> None:
    agent = {"name": "shop"}

    assert volumes.pick_agent(agent, None) is agent
    assert volumes.pick_agent({"agents": [agent]}, None) is agent


def test_one_of_several_agents_is_picked_by_its_whole_name() -> None:
    document = {"agents": [{"name": "shop-2"}, {"name": "shop"}]}

    assert volumes.pick_agent(document, "shop") == {"name": "shop"}
    for wanted, words in ((None, "--agent"), ("sho", "no agent 'sho'")):
        with pytest.raises(DeclarationError, match=words):
            volumes.pick_agent(document, wanted)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "no mapping"),
        ({}, "name: None is no name"),
        ({"name": "a b"}, "name: 'a b' is no name"),
        ({"name": "../x"}, "is no name"),
        ({"agents": "shop"}, "agents: expected a list"),
        ({"agents": [1]}, "agents: expected a list"),
        ({"agents": []}, "none"),
        ({"agents": [{"name": "a"}, {"name": "a"}]}, "same name"),
    ],
)
def test_a_file_without_an_agent_is_explained(document: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        volumes.pick_agent(document, None)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"sessions": "sqlite"}, "sessions: expected a mapping"),
        ({"memory": {}}, r"memory\.engine"),
        ({"memory": {"engine": 3}}, r"memory\.engine"),
        ({"services": SQLITE}, "services: expected a list"),
        ({"services": [SQLITE]}, r"services\[0\]\.name"),
        ({"sessions": {**SQLITE, "volume": "a:b"}}, r"sessions\.volume"),
    ],
)
def test_a_wrong_dependency_is_explained_by_its_place(declared: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        volume_of(**declared)
