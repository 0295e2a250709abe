"""What a URI means, and what a wrong one is answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.errors import InvalidInput
from hotset.source import Location, display_uri, known_schemes, parse_uri

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://bucket", Location("s3", "bucket", "")),
        ("s3://bucket/", Location("s3", "bucket", "")),
        ("s3a://bucket/a/b/", Location("s3", "bucket", "a/b")),
        ("S3://bucket/a%20b#c", Location("s3", "bucket", "a%20b#c")),
        ("s3://bucket//a", Location("s3", "bucket", "/a")),
        ("gs://bucket/train", Location("gs", "bucket", "train")),
        ("az://container/x", Location("az", "container", "x")),
        (
            "abfss://container@account.dfs.core.windows.net/x",
            Location("az", "container", "x", "https://account.blob.core.windows.net", account="account"),
        ),
        ("az://container@account/x", Location("az", "container", "x", account="account")),
        ("bos://bucket/x", Location("bos", "bucket", "x")),
        (
            "bos://my.bucket.bj.bcebos.com/x",
            Location("bos", "my.bucket", "x", "https://s3.bj.bcebos.com", "bj"),
        ),
        ("bos://bucket.s3.bj.bcebos.com", Location("bos", "bucket", "", "https://s3.bj.bcebos.com", "bj")),
        (
            "oss://bucket.oss-cn-hangzhou.aliyuncs.com/x",
            Location("oss", "bucket", "x", "https://s3.oss-cn-hangzhou.aliyuncs.com", "cn-hangzhou"),
        ),
        (
            "oss://bucket.oss-cn-hangzhou-internal.aliyuncs.com",
            Location("oss", "bucket", "", "https://s3.oss-cn-hangzhou-internal.aliyuncs.com", "cn-hangzhou"),
        ),
        (
            "cos://bucket-1250000000.cos.ap-guangzhou.myqcloud.com/x",
            Location("cos", "bucket-1250000000", "x", "https://cos.ap-guangzhou.myqcloud.com", "ap-guangzhou"),
        ),
        (
            "obs://bucket.obs.cn-north-4.myhuaweicloud.com/x",
            Location("obs", "bucket", "x", "https://obs.cn-north-4.myhuaweicloud.com", "cn-north-4"),
        ),
        ("https://host/m.jsonl?sig=1#x", Location("https", "", "https://host/m.jsonl", query="sig=1")),
        ("webhdfs://node:9870/data", Location("webhdfs", "node:9870", "data")),
        ("file:///a%20b", Location("file", "", "/a b")),
        ("file://localhost/a", Location("file", "", "/a")),
        ("local:///a", Location("file", "", "/a")),
        ("relative/a%20b", Location("file", "", "relative/a%20b")),
        ("a:b", Location("file", "", "a:b")),
    ],
)
def test_spellings(uri, expected):
    assert parse_uri(uri) == expected


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("s4://bucket", "did you mean s3://"),
        ("gopher://x", "Known: abfs"),
        ("s3://", "bucket is missing"),
        ("s3:///key", "bucket is missing"),
        ("s3:bucket", "two slashes"),
        ("s3://bucket//", "nothing but a slash"),
        (f"s3://user:{SECRET}@bucket/x", "user name and password"),
        (f"s3://bucket/x?sig={SECRET}", "takes no query"),
        (f"https://user:{SECRET}@host/x", "user name and password"),
        (f"az://c:{SECRET}@account/x", "password"),
        (f"az://c@account?sig={SECRET}/x", "takes no query"),
        (f"abfss://c@account.dfs.core.windows.net?sig={SECRET}", "takes no query"),
        ("az://@account/x", "az://container@account"),
        ("https://", "host is missing"),
        ("file://host/path", "three slashes"),
        ("file://", "path is missing"),
        ("file:///a%00b", "NUL"),
        ("a\0b", "NUL"),
        ("bos://bucket.no_region.bcebos.com/x", "cannot find bucket and region"),
    ],
)
def test_wrong_ones_say_what_to_write(uri, says):
    with pytest.raises(InvalidInput, match=says.replace("(", r"\(")) as caught:
        parse_uri(uri)
    assert SECRET not in str(caught.value)


@given(st.text())
def test_any_text_is_a_location_or_refused(text):
    try:
        location = parse_uri(text)
    except InvalidInput:
        return
    assert location.scheme in known_schemes()


@given(st.text(alphabet=st.characters(blacklist_categories=("Cs",), blacklist_characters="\0/"), min_size=1))
def test_a_path_written_as_a_uri_is_read_back(name):
    path = Path("/somewhere") / name
    assert parse_uri(path.as_uri()).root == str(path)


@given(st.sampled_from(["s3", "az", "https", "oss"]), st.text("abc:@/?#", max_size=20))
def test_what_is_shown_holds_no_password_and_no_query(scheme, rest):
    shown = display_uri(f"{scheme}://user:{SECRET}@host/{rest}?token={SECRET}")
    assert SECRET not in shown


def test_a_query_is_not_in_the_repr():
    assert SECRET not in repr(parse_uri(f"https://host/m?sig={SECRET}"))
