"""An endpoint is written down, so it must hold nothing secret, whatever the store and wherever it comes from."""

from __future__ import annotations

import pytest

from hotset.config.builder import Build
from hotset.errors import InvalidInput
from hotset.source import SourceOptions, describe_environment, identify, open_source
from hotset.source.endpoint import normal_endpoint

SECRET = "s3cr3t"
BAD = [
    f"http://u:{SECRET}@h",
    f"https://{SECRET}@h",
    f"https://h/?sig={SECRET}",
    f"u:{SECRET}@h",
    f"http://u:{SECRET}@[h",
]
URIS = ["s3://b", "oss://b", "gs://b", "az://c@account", "hdfs://h/x", "webhdfs://h/x"]
KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("h", "https://h"),
        ("h:1/path/", "https://h:1/path"),
        ("http://h:1/", "http://h:1"),
        ("https://h#fragment", "https://h"),
    ],
)
def test_normal(given, normal):
    assert normal_endpoint(given) == normal


@pytest.mark.parametrize("endpoint", [*BAD, "ftp://h", "http://", "https://:80", "https://h:99999"])
@pytest.mark.parametrize("uri", URIS)
def test_one_that_is_no_plain_url_is_refused_and_not_shown(uri, endpoint):
    options = SourceOptions(endpoint=endpoint)
    for action in (open_source, identify):
        with pytest.raises(InvalidInput, match="endpoint") as caught:
            action(uri, options=options, env=KEYS)
        assert SECRET not in str(caught.value)
    assert SECRET not in repr(describe_environment(uri, KEYS, options=options))


@pytest.mark.parametrize("uri", URIS)
def test_nothing_of_it_is_written_down(uri, tmp_path):
    with pytest.raises(InvalidInput):
        Build(uri, "name", cache=tmp_path / "cache", options=SourceOptions(endpoint=BAD[0]))
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize("endpoint", BAD)
@pytest.mark.parametrize(
    ("uri", "name", "form"),
    [
        ("az://c@account", "AZURE_STORAGE_ENDPOINT", "{}"),
        ("az://c", "AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;BlobEndpoint={};AccountKey=k"),
        ("gs://b", "GOOGLE_BASE_URL", "{}"),
        ("gs://b", "STORAGE_EMULATOR_HOST", "{}"),
    ],
)
def test_one_from_the_environment_is_treated_likewise(uri, name, form, endpoint):
    with pytest.raises(InvalidInput, match="endpoint") as caught:
        identify(uri, env={name: form.format(endpoint)})
    assert SECRET not in str(caught.value)
