"""What the containers are allowed to do and to see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.boxes import CONTAINERS, Boxes, logs, podman

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.containers, pytest.mark.asyncio(loop_scope="session")]

SERVICES = list(CONTAINERS)


async def in_container(service: str, python: str) -> str:
    return (await podman("exec", CONTAINERS[service], "python3", "-c", python)).strip()


async def test_nobody_in_a_container_is_root_or_may_write_outside_its_volume(
    boxes: Boxes,
) -> None:
    try_writing = (
        "import os, errno\n"
        "print(os.getuid())\n"
        "for path in ('/app/x', '/etc/x', '/x'):\n"
        "    try: open(path, 'w')\n"
        "    except OSError as error: print(errno.errorcode[error.errno])\n"
        "open('/tmp/x', 'w'); print('tmp')\n"
    )

    for service in SERVICES:
        uid, *refusals, tmp = (await in_container(service, try_writing)).split()

        assert uid == "10001"
        assert len(refusals) == 3
        assert set(refusals) <= {"EROFS", "EACCES"}
        assert tmp == "tmp"
        assert (await boxes.inspect(service))["HostConfig"]["ReadonlyRootfs"] is True


@pytest.mark.usefixtures("boxes")
async def test_what_was_needed_to_build_an_image_is_not_in_it() -> None:
    look = (
        "import glob, shutil\n"
        "print([p for p in ('gcc', 'cc', 'make') if shutil.which(p)]"
        " + glob.glob('/app/lib/python3*/site-packages/pip*')"
        " + glob.glob('/app/lib/python3*/site-packages/hatch*') + glob.glob('/build*')"
        " + glob.glob('/wheels*') + glob.glob('/src'))"
    )

    for service in SERVICES:
        assert await in_container(service, look) == "[]", service


async def test_sigterm_reaches_the_process_itself(boxes: Boxes) -> None:
    await boxes.compose("stop")

    last_words = {"turns": '"message": "stopped"', "agent": "draining", "nats": "Exiting"}
    for service, words in last_words.items():
        assert (await boxes.inspect(service))["State"]["ExitCode"] == 0
        assert words in await logs(service)


@pytest.mark.usefixtures("boxes")
async def test_only_turn_control_can_reach_the_agent() -> None:
    ask = (
        "import urllib.request as r\n"
        "try: print(r.urlopen('http://agent:8000/healthz', timeout=3).status)\n"
        "except OSError as error: print('unreachable')\n"
    )

    assert await in_container("turns", ask) == "200"
    assert await in_container("panel", ask) == "unreachable"


async def test_no_secret_stands_in_a_containers_environment(boxes: Boxes) -> None:
    for service in SERVICES:
        environment = (await boxes.inspect(service))["Config"]["Env"]
        assert not [one for one in environment if "PASSWORD" in one or "TOKEN=" in one]


def mounts_at_data(described: dict[str, list[dict[str, str]]]) -> list[str]:
    return [one["Name"] for one in described["Mounts"] if one["Destination"] == "/data"]


async def test_the_agents_volume_is_made_and_mounted_once_in_both(boxes: Boxes) -> None:
    for service in ("agent", "turns"):
        assert mounts_at_data(await boxes.inspect(service)) == ["vystak-agent-assistant-data"]


async def test_a_fragment_moves_both_to_the_volume_of_a_sqlite_dependency(
    boxes: Boxes, tmp_path: Path
) -> None:
    declared, fragment = tmp_path / "agent.yaml", tmp_path / "fragment.yaml"
    declared.write_text(
        "{name: assistant, sessions: {engine: sqlite}, memory: {engine: sqlite, name: notes}}"
    )
    fragment.write_text(await boxes.fragment(declared))

    await boxes.up(fragment)

    for service in ("agent", "turns"):
        assert mounts_at_data(await boxes.inspect(service)) == ["vystak-data-sessions"]
    await boxes.up()  # the containers are made anew, with the volume of before
    assert mounts_at_data(await boxes.inspect("agent")) == ["vystak-agent-assistant-data"]
    await podman("volume", "rm", "vystak-data-sessions")
