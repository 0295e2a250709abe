"""Pages of S3 listings, whatever the server's manner of writing them."""

from __future__ import annotations

from urllib.parse import quote
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.errors import InvalidInput, Unavailable
from hotset.source.base import FingerprintKind
from hotset.source.s3listing import Undecodable, parse_page

XML_TEXT = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufffd\ufffe\uffff"), min_size=1
)


def page(*rows: str, head: str = "", namespace: str = "") -> str:
    return f'<?xml version="1.0"?><ListBucketResult{namespace}>{head}{"".join(rows)}</ListBucketResult>'


def row(key: str, size: int = 1, tag: str = "<ETag>&quot;abc&quot;</ETag>", extra: str = "") -> str:
    time = "<LastModified>2024-01-01T00:00:00.123Z</LastModified>"
    return f"<Contents><Key>{key}</Key>{time}{tag}<Size>{size}</Size>{extra}</Contents>"


def keys(text: str, prefix: str = "", **kwargs: bool) -> list[str]:
    return [info.key for info in parse_page(text, prefix=prefix, where="s3://b", **kwargs).objects]


def test_an_object_as_amazon_writes_it():
    parsed = parse_page(
        page(
            row("t/a", 7), head="<IsTruncated>true</IsTruncated><NextContinuationToken>x&amp;y</NextContinuationToken>"
        ),
        prefix="t/",
        where="s3://b",
    )
    [info] = parsed.objects
    assert info == ("a", 7, FingerprintKind.ETAG, b"abc", 1_704_067_200_123_000_000)
    assert (parsed.token, parsed.count) == ("x&y", 1)


@given(st.lists(XML_TEXT, max_size=5))
def test_every_key_survives_escaping(names):
    names = [f"t/{name}" for name in names if not name.endswith("/")]
    text = page(*(row(escape(name)) for name in names))
    assert keys(text, "t/") == [name[2:] for name in names]


@given(st.lists(st.text(st.characters(blacklist_categories=("Cs",)), min_size=1), max_size=5))
def test_every_key_survives_url_encoding(names):
    names = [name for name in names if not name.endswith("/")]
    head = "<EncodingType>url</EncodingType>"
    amazon = page(*(row(quote(name, safe="/").replace("%20", "+")) for name in names), head=head)
    if any(" " in name for name in names):
        strict = page(*(row(quote(name, safe="/+")) for name in names), head=head)
        assert keys(strict) == names
    assert keys(amazon) == names


def test_directory_markers_are_no_objects_but_full_ones_are():
    text = page(row("t/", 0), row("t/dir/", 0), row("t/full/", 3), row("t/a", 0))
    parsed = parse_page(text, prefix="t/", where="s3://b")
    assert [info.key for info in parsed.objects] == ["full/", "a"]
    assert parsed.count == 4


def test_numeric_escapes_mean_exactly_their_character():
    assert keys(page(row("a&#1;b&#x80;c&#10;"))) == ["a\x01b\x80c\n"]


@pytest.mark.parametrize("key", ["a\ufffdb", "a\x01b"])
def test_a_character_that_xml_cannot_hold_asks_for_another_encoding(key):
    text = page(row(key), row("no tag", tag=""))
    with pytest.raises(Undecodable):
        parse_page(text, prefix="", where="s3://b")


def test_a_server_without_that_encoding_is_taken_at_its_word():
    assert keys(page(row("a\ufffdb")), asked_for_url_encoding=True) == ["a\ufffdb"]


def test_unusual_xml_goes_to_a_parser():
    namespace = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
    text = page(row("<![CDATA[a<b]]>"), row("c&amp;amp;d", tag=""), namespace=namespace)
    infos = parse_page(text, prefix="", where="s3://b").objects
    assert [info.key for info in infos] == ["a<b", "c&amp;d"]
    assert infos[1].kind is FingerprintKind.MODIFIED


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("<html>hello</html>", InvalidInput),
        ("", InvalidInput),
        (page(row("a", "x")), InvalidInput),
        (page(row("a"), head="<IsTruncated>true</IsTruncated>"), Unavailable),
        (page(row("elsewhere/a")), Unavailable),
    ],
)
def test_what_is_no_listing_is_refused(text, error):
    with pytest.raises(error, match="s3://b"):
        parse_page(text, prefix="t/", where="s3://b")


@given(st.text(alphabet='<>/&;"abKeySizContents#0', max_size=60))
def test_no_text_is_taken_for_more_than_it_says(noise):
    try:
        parsed = parse_page(page(noise), prefix="", where="s3://b", asked_for_url_encoding=True)
    except (InvalidInput, Unavailable):
        return
    assert parsed.token is None
