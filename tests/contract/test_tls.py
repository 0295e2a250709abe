"""Custom certificates: both clients trust what ca_file names, and say what to set where it is missing."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotset.errors import Denied
from hotset.source import SourceOptions, open_source
from hotset.testing.source import listed
from tests.contract.standins import Shelf

pytestmark = pytest.mark.integration

ODD = "odd\nkey"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate for 127.0.0.1 and its key; beside it ``ca.pem``, the authority that signed it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no `openssl` to make a certificate with")
    at = tmp_path_factory.mktemp("tls")
    new = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    authority = ["-subj", "/CN=hotset test authority", "-keyout", f"{at}/ca.key", "-out", f"{at}/ca.pem"]
    subprocess.run([*new, *authority], check=True, capture_output=True)
    leaf = ["-subj", "/CN=127.0.0.1", "-keyout", f"{at}/key.pem", "-out", f"{at}/cert.pem"]
    leaf += ["-CA", f"{at}/ca.pem", "-CAkey", f"{at}/ca.key"]
    leaf += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*new, *leaf], check=True, capture_output=True)
    both = at / "both.pem"
    both.write_bytes((at / "cert.pem").read_bytes() + (at / "key.pem").read_bytes())
    return both


@pytest.fixture
def shelf(certificate: Path) -> Iterator[Shelf]:
    shelf = Shelf(bucket="some-bucket")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    shelf.serve_tls(context)
    shelf.objects |= {"a": b"content", ODD: b"content"}
    with shelf:
        yield shelf


def test_a_certificate_of_ones_own(shelf, certificate):
    cert = certificate.with_name("ca.pem")
    env = {"AWS_CA_BUNDLE": str(cert), "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    source = open_source("s3://some-bucket", env=env, options=SourceOptions(endpoint=shelf.endpoint))
    infos = listed(source)
    for key in ("a", ODD):
        assert bytes(source.read(key, 0, 7, infos[key])) == b"content"
    untrusting = SourceOptions(endpoint=shelf.endpoint, access_key="a", secret_key="b")
    stranger = open_source("s3://some-bucket", env={}, options=untrusting)
    for key in ("a", ODD):
        with pytest.raises(Denied, match="certificate is not trusted"):
            stranger.read(key, 0, 7, infos[key])
    with pytest.raises(Denied, match="AWS_CA_BUNDLE"):
        listed(stranger)
    stranger.close()
    source.close()
