from __future__ import annotations

from typing import Any

import pytest

from vystak_turns_rpc import methods
from vystak_turns_rpc.errors import ErrorCode, RpcError
from vystak_turns_rpc.methods import (
    CancelDetachedParams,
    CreateDetachedParams,
    Params,
    ResumeDetachedParams,
    TurnStatusParams,
    TurnStatusResult,
    parse_params,
)

CREATE: dict[str, Any] = {"request": {"input": "hi"}, "turn_id": "t1", "stream_subject": "s"}


def refusal(model: type[Params], params: dict[str, Any]) -> str:
    with pytest.raises(RpcError) as caught:
        parse_params(model, params)
    assert caught.value.code is ErrorCode.INVALID_PARAMS
    assert "\n" not in caught.value.message
    return caught.value.message


def test_the_names_on_the_wire_are_the_original_ones() -> None:
    assert methods.CREATE_DETACHED == "responses/createDetached"
    assert methods.TURN_STATUS == "responses/turnStatus"
    assert methods.RESUME_DETACHED == "responses/resumeDetached"
    assert methods.CANCEL_DETACHED == "responses/cancelDetached"


def test_create_keeps_the_request_as_it_came_and_ignores_unknown_keys() -> None:
    request = {"input": "hi", "nested": {"a": [1, None]}, "model": ""}
    params = parse_params(CreateDetachedParams, {**CREATE, "request": request, "new": 1})
    assert params.request == request


@pytest.mark.parametrize("field", ["request", "turn_id", "stream_subject"])
@pytest.mark.parametrize("value", [None, 5, [], True, {}, ""])
def test_create_refuses_a_field_that_is_missing_empty_or_of_another_type(
    field: str, value: object
) -> None:
    assert refusal(CreateDetachedParams, {**CREATE, field: value}).startswith(f"{field}: ")
    without = {key: kept for key, kept in CREATE.items() if key != field}
    assert refusal(CreateDetachedParams, without) == f"{field} is missing"


@pytest.mark.parametrize("turn_id", ["a.b", "*", ">", "a b", "é", "a" * 129, "a\n"])
def test_create_refuses_a_turn_id_that_is_no_safe_token(turn_id: str) -> None:
    message = refusal(CreateDetachedParams, {**CREATE, "turn_id": turn_id})
    assert message == "turn_id: must be 1 to 128 letters, digits, '_' or '-'"


@pytest.mark.parametrize("params", [{}, {"turn_id": None}, {"turn_id": ""}])
def test_status_without_an_id_asks_for_no_turn(params: dict[str, Any]) -> None:
    assert parse_params(TurnStatusParams, params).turn_id is None


@pytest.mark.parametrize("turn_id", [5, True, [], {}])
def test_status_refuses_an_id_of_another_type(turn_id: object) -> None:
    refusal(TurnStatusParams, {"turn_id": turn_id})


def test_an_unknown_turn_is_answered_with_status_and_interrupt() -> None:
    wire = TurnStatusResult.model_validate({"status": "unknown"}).model_dump(mode="json")
    assert wire["status"] == "unknown"
    assert wire["interrupt"] is None


def test_a_status_of_a_newer_service_is_read() -> None:
    wire = {"status": "parked", "interrupt": {"tool": "rm"}, "new": [1], "park_generation": 2}
    result = TurnStatusResult.model_validate(wire)
    assert (result.interrupt, result.park_generation) == ({"tool": "rm"}, 2)


@pytest.mark.parametrize("resume", [None, {}, [], False, 0, "", {"approved": True}])
def test_a_decision_may_be_any_json(resume: object) -> None:
    params = parse_params(ResumeDetachedParams, {"turn_id": "t", "resume": resume})
    assert params.resume == resume
    assert (params.park_generation, params.interrupt_id) == (None, None)


def test_a_decision_must_be_there() -> None:
    assert refusal(ResumeDetachedParams, {"turn_id": "t"}) == "resume is missing"


@pytest.mark.parametrize("generation", [True, -1, 1.0, "1", 2**53])
def test_an_odd_generation_is_refused(generation: object) -> None:
    params = {"turn_id": "t", "resume": 1, "park_generation": generation}
    assert refusal(ResumeDetachedParams, params).startswith("park_generation: ")


def test_cancel_needs_a_turn() -> None:
    assert refusal(CancelDetachedParams, {}) == "turn_id is missing"
