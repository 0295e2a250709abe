"""The signature, against the examples of Amazon's documentation."""

from __future__ import annotations

from datetime import UTC, datetime

from hotset.source.signing import Credentials, Renewed
from hotset.source.sigv4 import canonical_query, encode_key, signed_headers

EXAMPLE = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
NOW = datetime(2013, 5, 24, tzinfo=UTC)


def signature(**kwargs) -> str:
    headers = signed_headers(
        "GET",
        host="examplebucket.s3.amazonaws.com",
        credentials=EXAMPLE,
        region="us-east-1",
        now=NOW,
        **kwargs,
    )
    return headers["Authorization"].rpartition("Signature=")[2]


def test_get_object_of_the_documentation():
    assert (
        signature(path="/test.txt", query="", headers={"Range": "bytes=0-9"})
        == "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_list_objects_of_the_documentation():
    assert (
        signature(path="/", query=canonical_query({"prefix": "J", "max-keys": "2"}), headers={})
        == "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    )


def test_keys_and_queries_are_encoded_once_and_fully():
    assert encode_key("a b/../ü+%") == "a%20b/../%C3%BC%2B%25"
    assert canonical_query({"b": "x/y z", "a": ""}) == "a=&b=x%2Fy%20z"


def test_a_session_token_is_signed():
    headers = signed_headers(
        "GET",
        host="h",
        path="/",
        query="",
        headers={},
        credentials=Credentials("a", "b", "token"),
        region="r",
        now=NOW,
    )
    assert headers["x-amz-security-token"] == "token"
    assert "x-amz-security-token" in headers["Authorization"]


def test_credentials_show_no_secret():
    assert "EXAMPLE" not in repr(EXAMPLE)


def test_credentials_are_renewed_before_they_expire():
    moments = iter([datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (1, 2)])
    given: list[Credentials] = []

    def provide() -> Credentials:
        given.append(Credentials("a", "b", str(len(given)), next(moments)))
        return given[-1]

    clock = [datetime(2024, 1, 1, tzinfo=UTC)]
    renewed = Renewed(provide, now=lambda: clock[0])
    assert [renewed().session_token, renewed().session_token] == ["0", "0"]
    clock[0] = datetime(2024, 1, 1, 0, 54, tzinfo=UTC)
    assert renewed().session_token == "0"
    clock[0] = datetime(2024, 1, 1, 0, 55, tzinfo=UTC)
    assert renewed().session_token == "1"
