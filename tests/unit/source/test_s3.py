"""Where requests go: endpoint, region and style of addressing, from URI, options and environment."""

from __future__ import annotations

import pytest

from hotset.errors import InvalidInput
from hotset.source import SourceOptions, parse_uri
from hotset.source.client import client_config, proxy_for
from hotset.source.place import resolve


def place(uri, env=None, **options):
    return resolve(parse_uri(uri), SourceOptions(**options), env or {})


@pytest.mark.parametrize(
    ("uri", "env", "options", "url", "region"),
    [
        ("s3://b", {}, {}, "https://b.s3.us-east-1.amazonaws.com", "us-east-1"),
        ("s3://b", {"AWS_DEFAULT_REGION": "eu-west-1"}, {}, "https://b.s3.eu-west-1.amazonaws.com", "eu-west-1"),
        ("s3://b", {"AWS_REGION": "cn-north-1"}, {}, "https://b.s3.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("s3://b", {"AWS_REGION": "x"}, {"region": "y"}, "https://b.s3.y.amazonaws.com", "y"),
        ("s3://with.dots", {}, {}, "https://s3.us-east-1.amazonaws.com/with.dots", "us-east-1"),
        ("s3://b", {}, {"endpoint": "minio:9000"}, "https://minio:9000/b", "us-east-1"),
        ("s3://b", {}, {"endpoint": "http://minio/s3/"}, "http://minio/s3/b", "us-east-1"),
        ("s3://b", {"AWS_ENDPOINT_URL": "http://x", "AWS_ENDPOINT_URL_S3": "http://y"}, {}, "http://y/b", "us-east-1"),
        ("s3://b", {}, {"endpoint": "http://x.y", "bucket_in_host": True}, "http://b.x.y", "us-east-1"),
        ("bos://b.bj.bcebos.com", {}, {}, "https://s3.bj.bcebos.com/b", "bj"),
        ("oss://b.oss-cn-x.aliyuncs.com", {}, {}, "https://b.s3.oss-cn-x.aliyuncs.com", "cn-x"),
        ("cos://b-1.cos.ap-x.myqcloud.com", {}, {}, "https://b-1.cos.ap-x.myqcloud.com", "ap-x"),
        ("obs://b.obs.x.myhuaweicloud.com", {}, {}, "https://b.obs.x.myhuaweicloud.com", "x"),
        ("oss://b", {"OSS_ENDPOINT": "127.0.0.1:9"}, {}, "https://127.0.0.1:9/b", "us-east-1"),
        ("oss://b", {"OSS_ENDPOINT": "http://gateway", "OSS_REGION": "r"}, {}, "http://gateway/b", "r"),
        ("bos://b", {"BOS_ENDPOINT": "http://x", "AWS_ENDPOINT_URL": "http://wrong"}, {}, "http://x/b", "us-east-1"),
    ],
)
def test_resolve(uri, env, options, url, region):
    found = place(uri, env, **options)
    assert (found.bucket_url, found.region) == (url, region)


def test_configured_endpoints_can_be_ignored():
    env = {"AWS_ENDPOINT_URL": "http://x", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}
    assert place("s3://b", env).endpoint == "https://s3.us-east-1.amazonaws.com"


def test_the_profile_gives_region_and_endpoint(tmp_path):
    (tmp_path / "config").write_text("[profile p]\nregion = r\nendpoint_url = http://x\n")
    env = {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_PROFILE": "p"}
    found = place("s3://b", env)
    assert (found.endpoint, found.region) == ("http://x", "r")


@pytest.mark.parametrize("scheme", ["bos", "oss", "cos", "obs"])
def test_without_an_endpoint_the_variable_is_named(scheme):
    with pytest.raises(InvalidInput, match=f"{scheme.upper()}_ENDPOINT"):
        place(f"{scheme}://b")


@pytest.mark.parametrize("endpoint", ["http://u:p@x", "http://x?q=1", "ftp://x", "http://", "https://:80"])
def test_an_endpoint_must_be_a_plain_url(endpoint):
    with pytest.raises(InvalidInput, match="endpoint") as caught:
        place("s3://b", endpoint=endpoint)
    assert "p@x" not in str(caught.value)


def test_the_identity_tells_places_apart_but_not_regions_of_amazon():
    uris = ["s3://b", "s3://b/x", "s3://c", "bos://b.bj.bcebos.com", "bos://b.gz.bcebos.com"]
    assert len({place(uri).identity for uri in uris}) == len(uris)
    assert place("s3://b", region="x").identity == place("s3://b/", region="y").identity
    assert place("s3://b", endpoint="http://x").identity != place("s3://b").identity
    assert place("s3://b/x").identity != place("s3://b/x", endpoint="http://y").identity


@pytest.mark.parametrize(
    ("url", "env", "expected"),
    [
        ("https://h/x", {}, None),
        ("https://h/x", {"HTTPS_PROXY": "http://p"}, "http://p"),
        ("https://h/x", {"https_proxy": "http://q", "HTTPS_PROXY": "http://p"}, "http://q"),
        ("https://h/x", {"HTTP_PROXY": "http://p"}, None),
        ("http://h/x", {"HTTP_PROXY": "http://p"}, "http://p"),
        ("http://h/x", {"ALL_PROXY": "http://p"}, "http://p"),
        ("http://h/x", {"HTTP_PROXY": "http://p", "NO_PROXY": "*"}, None),
        ("http://h/x", {"HTTP_PROXY": "http://p", "NO_PROXY": "a, h"}, None),
        ("http://a.h.org/x", {"HTTP_PROXY": "http://p", "NO_PROXY": ".h.org"}, None),
        ("http://a.h.org/x", {"HTTP_PROXY": "http://p", "NO_PROXY": "h.org"}, None),
        ("http://ah.org/x", {"HTTP_PROXY": "http://p", "NO_PROXY": "h.org"}, "http://p"),
        ("http://10.1.2.3/x", {"HTTP_PROXY": "http://p", "NO_PROXY": "10.0.0.0/8"}, None),
        ("http://11.1.2.3/x", {"HTTP_PROXY": "http://p", "NO_PROXY": "10.0.0.0/8,,"}, "http://p"),
    ],
)
def test_proxies(url, env, expected):
    assert proxy_for(url, SourceOptions(), env) == expected
    assert proxy_for(url, SourceOptions(proxy="http://given"), env) == "http://given"
    assert proxy_for(url, SourceOptions(proxy=""), env) is None


def test_certificates_are_read_from_the_file_that_tools_know(tmp_path):
    (tmp_path / "ca.pem").write_bytes(b"certificates")
    env = {"AWS_CA_BUNDLE": str(tmp_path / "ca.pem")}
    assert client_config("https://h", SourceOptions(), env)["root_certificate"] == b"certificates"
    with pytest.raises(InvalidInput, match="absent"):
        client_config("https://h", SourceOptions(ca_file="/absent"), env)


def test_plain_http_is_allowed_only_where_the_endpoint_says_so():
    assert client_config("http://h", SourceOptions(), {})["allow_http"] is True
    assert client_config("https://h", SourceOptions(), {})["allow_http"] is False
    assert client_config("http://h", SourceOptions(allow_http=False), {})["allow_http"] is False


def test_options_show_no_secret():
    options = SourceOptions(access_key="AK", secret_key="SK", session_token="T", proxy="http://u:p@x", extra={"k": "v"})
    assert not any(secret in repr(options) for secret in ("AK", "SK", "'T'", "u:p", "'v'"))
