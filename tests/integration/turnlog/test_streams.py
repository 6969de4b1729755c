from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.turnlog.places import BASE
from tests.support.waiting import ticks
from vystak_turns.adapters.turnlog_nats.streams import StreamState
from vystak_turns_rpc.stream import stream_settings

if TYPE_CHECKING:
    from tests.integration.turnlog.places import Place

pytestmark = pytest.mark.broker


async def test_a_missing_stream_is_made_with_the_settings_of_the_contract(bare: Place) -> None:
    report = await bare.streams.ensure_stream(bare.settings)

    assert report.state is StreamState.CREATED
    config = (await bare.ask("STREAM.INFO.vystak-default-streams"))["config"]
    assert config["subjects"] == ["vystak.default.streams.>"]
    assert config["storage"] == "file"
    assert config["retention"] == "limits"
    assert config["max_age"] == 3600 * 10**9
    assert config["duplicate_window"] == 120 * 10**9
    assert config["num_replicas"] == 1


async def test_a_stream_of_a_panel_is_ready(bare: Place) -> None:
    await bare.client.jetstream().add_stream(
        name="vystak-default-streams", subjects=[f"{BASE}.streams.>"], max_age=3600
    )

    report = await bare.streams.ensure_stream(bare.settings)

    assert (report.state, report.words) == (StreamState.READY, ())


async def test_a_foreign_stream_is_told_of_and_left_as_it_is(bare: Place) -> None:
    await bare.client.jetstream().add_stream(
        name="vystak-default-streams", subjects=[f"{BASE}.streams.>"], max_age=60
    )

    (report,) = await bare.streams.ensure_all()

    assert report.state is StreamState.FOREIGN
    assert report.usable
    assert "max_age" in report.words[0]
    config = (await bare.ask("STREAM.INFO.vystak-default-streams"))["config"]
    assert config["max_age"] == 60 * 10**9


async def test_a_subject_that_another_stream_takes_leaves_ours_unavailable(bare: Place) -> None:
    await bare.client.jetstream().add_stream(name="other", subjects=["vystak.>"])

    report = await bare.streams.ensure_stream(bare.settings)

    assert report.state is StreamState.UNAVAILABLE
    assert not report.usable
    assert "another stream takes" in report.words[0]


async def test_what_was_found_is_not_asked_again_until_it_is_missed(place: Place) -> None:
    await place.ask("STREAM.DELETE.vystak-default-streams")

    assert (await place.streams.ensure_all())[0].state is StreamState.CREATED
    await place.streams.look_again("vystak-default-streams")

    assert await place.count() == 0


async def test_a_broker_that_is_gone_is_asked_again(bare: Place) -> None:
    await bare.server.kill()
    report = await bare.streams.ensure_stream(bare.settings)
    assert report.state is StreamState.UNAVAILABLE
    await bare.server.start()

    async for _ in ticks("the connection"):
        report = await bare.streams.ensure_stream(bare.settings)
        if report.state is not StreamState.UNAVAILABLE:
            break
    assert report.state is StreamState.CREATED


async def test_a_longer_age_is_what_the_stream_is_made_with(bare: Place) -> None:
    settings = stream_settings("vystak.long", max_age_s=7200)

    await bare.streams.ensure_stream(settings)

    config = (await bare.ask("STREAM.INFO.vystak-long-streams"))["config"]
    assert config["max_age"] == 7200 * 10**9
