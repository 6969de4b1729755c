from __future__ import annotations

import json
import random

import pytest

from vystak_turns_rpc import envelope, jsontext
from vystak_turns_rpc.envelope import BadRequest, ProtocolError, Request
from vystak_turns_rpc.errors import ErrorCode, RpcError


def body(**changes: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "a", "method": "m", **changes}).encode()


def refused(payload: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        envelope.parse_request(payload)
    return caught.value


def test_a_request_is_read_with_its_params_and_metadata() -> None:
    payload = body(params={"x": 1}, metadata={"trace": "t"}, extra=True)
    assert envelope.parse_request(payload) == Request(
        method="m", params={"x": 1}, id="a", is_notification=False, metadata={"trace": "t"}
    )


def test_a_written_request_is_read_back() -> None:
    read = envelope.parse_request(envelope.request("m", {"text": "ü\n"}, 7))
    assert (read.method, read.params, read.id) == ("m", {"text": "ü\n"}, 7)


@pytest.mark.parametrize("caller_id", ["a", "", 0, -3, 1.5, None])
def test_every_legal_id_is_kept(caller_id: object) -> None:
    assert envelope.parse_request(body(id=caller_id)).id == caller_id


def test_a_request_without_an_id_is_a_notification_and_null_is_not() -> None:
    assert envelope.parse_request(b'{"jsonrpc":"2.0","method":"m"}').is_notification
    assert not envelope.parse_request(body(id=None)).is_notification


def test_absent_params_are_empty_and_odd_metadata_is_absent() -> None:
    read = envelope.parse_request(body(metadata=[1]))
    assert read.params == {}
    assert read.metadata is None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"rubbish",
        b"\xff\xfe\x00",
        '{"a":1}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
        body(params={"x": "?"}).replace(b'"?"', b"NaN"),
        body(params={"x": "?"}).replace(b'"?"', b"-Infinity"),
        body(params={"x": "?"}).replace(b'"?"', b"1e999"),
        body(params={"x": "?"}).replace(b'"?"', b"9" * 5000),
        body(params={"x": "?"}).replace(b'"?"', rb'"\ud83d"'),
        body(params={"?": 1}).replace(b'"?"', rb'"\udc00"'),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 200 + b"]" * 200,
    ],
)
def test_bytes_that_are_no_clean_json_are_a_parse_error_with_id_null(payload: bytes) -> None:
    error = refused(payload)
    assert (error.code, error.id) == (ErrorCode.PARSE_ERROR, None)


@pytest.mark.parametrize("payload", [b"[]", b"[{}]", b"null", b'"text"', b"3", b"true"])
def test_json_that_is_no_object_is_an_invalid_request_with_id_null(payload: bytes) -> None:
    error = refused(payload)
    assert (error.code, error.id) == (ErrorCode.INVALID_REQUEST, None)


@pytest.mark.parametrize("caller_id", [True, [], {}, [1]])
def test_an_id_of_another_type_is_refused_and_not_echoed(caller_id: object) -> None:
    error = refused(body(id=caller_id))
    assert (error.code, error.id) == (ErrorCode.INVALID_REQUEST, None)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"jsonrpc": "1.0"}, ErrorCode.INVALID_REQUEST),
        ({"jsonrpc": 2.0}, ErrorCode.INVALID_REQUEST),
        ({"jsonrpc": None}, ErrorCode.INVALID_REQUEST),
        ({"method": ""}, ErrorCode.INVALID_REQUEST),
        ({"method": 5}, ErrorCode.INVALID_REQUEST),
        ({"method": None}, ErrorCode.INVALID_REQUEST),
        ({"params": "text"}, ErrorCode.INVALID_REQUEST),
        ({"params": None}, ErrorCode.INVALID_REQUEST),
        ({"params": [1]}, ErrorCode.INVALID_PARAMS),
    ],
)
def test_a_malformed_request_is_refused_with_its_id(
    changes: dict[str, object], code: ErrorCode
) -> None:
    error = refused(body(id="mine", **changes))
    assert (error.code, error.id) == (code, "mine")


def test_params_in_a_list_are_explained() -> None:
    assert refused(body(params=[])).message == "params must be an object"


def test_of_a_repeated_key_the_last_value_counts() -> None:
    assert envelope.parse_request(b'{"jsonrpc":"2.0","method":"a","method":"b"}').method == "b"


def test_mutilated_requests_raise_nothing_but_bad_request() -> None:
    chance = random.Random(20)
    whole = body(params={"a": [1, {"b": "\\u00fc"}], "c": None})
    refusals = 0
    for _ in range(3000):
        payload = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            payload[chance.randrange(len(payload))] = chance.randrange(256)
        try:
            envelope.parse_request(bytes(payload))
        except BadRequest:
            refusals += 1
    assert refusals > 1000


def test_a_surrogate_pair_written_as_escapes_is_one_sign() -> None:
    payload = body(params={"x": "?"}).replace(b'"?"', rb'"\ud83d\ude00"')
    assert envelope.parse_request(payload).params == {"x": "\U0001f600"}


def test_as_deep_as_allowed_is_read_and_one_deeper_is_not() -> None:
    # Text between the brackets keeps the number of brackets above the limit in both.
    def nested(depth: int) -> bytes:
        return b"[[]," * (depth - 1) + b"[[]" + b"]" * depth

    assert jsontext.load_strict(nested(jsontext.MAX_DEPTH - 1))
    with pytest.raises(ValueError, match="nested deeper"):
        jsontext.load_strict(nested(jsontext.MAX_DEPTH + 1))


def test_replies_have_the_exact_shape() -> None:
    assert json.loads(envelope.success("a", {"turn_id": "t"})) == {
        "jsonrpc": "2.0",
        "id": "a",
        "result": {"turn_id": "t"},
    }
    assert json.loads(envelope.failure(None, ErrorCode.PARSE_ERROR, "why")) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32700, "message": "why"},
    }
    with_data = json.loads(envelope.failure(1, -32050, "busy", {"turn_id": "t"}))
    assert with_data["error"] == {"code": -32050, "message": "busy", "data": {"turn_id": "t"}}


def test_a_reply_gives_its_result_to_the_request_it_answers() -> None:
    assert envelope.parse_reply(envelope.success("a", {"x": 1}), "a") == {"x": 1}


@pytest.mark.parametrize("reply_id", ["a", None])
def test_an_error_reply_is_raised_with_code_message_and_data(reply_id: str | None) -> None:
    payload = envelope.failure(reply_id, ErrorCode.THREAD_BUSY, "busy", {"turn_id": "t"})
    with pytest.raises(RpcError) as caught:
        envelope.parse_reply(payload, "a")
    error = caught.value
    assert (error.code, error.message, error.data) == (-32050, "busy", {"turn_id": "t"})
    assert isinstance(error.code, ErrorCode)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        envelope.success("other", {}),
        envelope.failure("other", -32603, "x"),
        b'{"id":"a","result":[]}',
        b'{"id":"a","error":"text"}',
        b'{"id":"a","error":{"code":"x","message":"m"}}',
    ],
)
def test_anything_else_is_no_reply(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        envelope.parse_reply(payload, "a")


def test_an_unknown_code_stays_the_number_it_is() -> None:
    error = RpcError(-1, "odd")
    assert error.code == -1
    assert not isinstance(error.code, ErrorCode)
    assert str(error) == "odd (code -1)"


def test_own_codes_stay_inside_their_range_and_out_of_a2a() -> None:
    own = [code for code in ErrorCode if -32099 <= code < -32000]
    assert own
    assert all(-32099 <= code <= -32050 for code in own)
