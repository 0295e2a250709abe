"""Tar archives: the regular files that tarfile finds, in its three formats, wherever the chunks end."""

from __future__ import annotations

import io
import tarfile
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.loaders.records.format import Malformed
from hotset.loaders.records.tar import Tar, _files, _samples
from tests.unit.loaders.scanning import read, scan

CUTS = st.lists(st.integers(1, 12_000), max_size=6)
NAMES = st.one_of(
    st.text(st.sampled_from("abé./ "), min_size=1, max_size=12),
    st.text(st.sampled_from("x"), min_size=90, max_size=130).map(lambda text: f"{text}/{text}"),
    st.integers(1, 300).map(lambda length: "y" * length),
)
NAME = NAMES.filter(lambda name: not name.endswith("/"))  # of a regular file, tarfile would drop the slash
KINDS = [tarfile.REGTYPE, tarfile.REGTYPE, tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE,
         tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]  # fmt: skip
MEMBERS = st.lists(st.tuples(NAME, st.sampled_from(KINDS), st.binary(max_size=1100)), max_size=8)


def archive(members, form: int = tarfile.PAX_FORMAT) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=form) as tar:
        for name, kind, data in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = name[::-1] * 3
            info.size = len(data) if kind in (tarfile.REGTYPE, tarfile.AREGTYPE) else 0
            tar.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def regular(*files: tuple[str, bytes]) -> bytes:
    return archive([(name, tarfile.REGTYPE, data) for name, data in files])


def reference(data: bytes) -> list[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(info.name, tar.extractfile(info).read()) for info in tar if info.isreg()]


def files_of(data: bytes, cuts=(), *, skip_damaged: bool = False) -> list[tuple[str, bytes]]:
    _, found = scan(Tar(), data, cuts, skip_damaged=skip_damaged)
    return read(_files, data, found.spans)


def samples_of(data: bytes, cuts=()) -> list[dict]:
    _, found = scan(Tar(group=True), data, cuts)
    return read(_samples, data, found.spans)


@given(members=MEMBERS, form=st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]), cuts=CUTS)
def test_what_tarfile_finds(members, form, cuts):
    try:
        data = archive(members, form)
    except ValueError:
        return  # a name that this format cannot hold
    assert files_of(data, cuts) == reference(data)


class TestOddArchives:
    FILES: ClassVar = [("a.txt", b"one"), ("b.txt", b"x" * 600)]

    def test_without_blocks_of_zeros_at_the_end(self):
        assert files_of(regular(*self.FILES)[: 512 * 5]) == self.FILES

    def test_directories_of_old_archives(self):
        assert files_of(archive([("dir/", tarfile.AREGTYPE, b""), ("a", tarfile.REGTYPE, b"1")])) == [("a", b"1")]

    def test_what_comes_behind_the_end_is_nothing(self):
        data = regular(*self.FILES)
        assert files_of(data + b"garbage" * 1000) == self.FILES
        assert files_of(data + data) == self.FILES

    def test_the_last_padding_may_lack(self):
        assert files_of(regular(*self.FILES)[: 512 * 3 + 600]) == self.FILES

    def test_global_headers_are_skipped(self):
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "é"}) as tar:
            info = tarfile.TarInfo("a")
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
        assert files_of(sink.getvalue()) == [("a", b"abc")]

    def test_a_name_that_is_not_utf8(self):
        data = bytearray(regular(("aé", b"1")))
        data = data.replace("é".encode(), b"\xff\xfe", 1)
        header = data[:512]
        total = sum(header[:148]) + sum(header[156:]) + 8 * 32
        data[148:156] = b"%06o\0 " % total
        assert files_of(bytes(data)) == reference(bytes(data)) == [("a\udcff\udcfe", b"1")]

    def test_a_size_that_does_not_fit_octal_digits(self):
        data = bytearray(archive([("a", tarfile.REGTYPE, b"123")], tarfile.GNU_FORMAT))
        data[124:136] = b"\x80" + (3).to_bytes(11, "big")
        data[148:156] = b"%06o\0 " % (sum(data[:148]) + sum(data[156:512]) + 8 * 32)
        assert files_of(bytes(data)) == reference(bytes(data)) == [("a", b"123")]

    def test_a_checksum_of_signed_bytes(self):
        data = bytearray(archive([("é", tarfile.REGTYPE, b"1")], tarfile.GNU_FORMAT))
        rest = data[:148] + data[156:512]
        data[148:156] = b"%06o\0 " % (sum(rest) - 256 * sum(byte > 127 for byte in rest) + 8 * 32)
        assert files_of(bytes(data)) == reference(bytes(data)) == [("é", b"1")]

    @pytest.mark.parametrize("kind", [tarfile.GNUTYPE_SPARSE, b"M"])
    def test_members_in_several_parts_are_refused(self, kind):
        data = archive([("good", tarfile.REGTYPE, b"1"), ("bad", kind, b"")])
        with pytest.raises(Malformed, match="sparse"):
            files_of(data)
        assert files_of(data, skip_damaged=True) == [("good", b"1")]

    def test_sparse_files_of_pax_are_refused(self):
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as tar:
            info = tarfile.TarInfo("a")
            info.pax_headers = {"GNU.sparse.major": "1"}
            tar.addfile(info, io.BytesIO())
        with pytest.raises(Malformed, match="sparse"):
            files_of(sink.getvalue())


class TestDamage:
    def test_cut_off_anywhere(self):
        files = [("a", b"x" * 700), ("b" * 150, b"y" * 20)]
        data = regular(*files)
        first, second = 512 + 700, 512 * 6 + 20  # where their bytes end
        for cut in range(1, 512 * 8, 37):
            _, found = scan(Tar(), data[:cut], skip_damaged=True)
            assert read(_files, data[:cut], found.spans) == files[: (cut >= first) + (cut >= second)]
            if first <= cut <= 512 * 3 or cut >= second:
                assert found.damage == []  # what is cut off is padding, or the end
            else:
                [(at, reason)] = found.damage
                assert 0 <= at <= cut
                assert "cut off" in reason

    def test_a_damaged_header(self):
        data = bytearray(regular(("a", b"1"), ("b", b"2")))
        data[1024 + 3] ^= 4
        with pytest.raises(Malformed, match="header of a member is damaged") as caught:
            files_of(bytes(data))
        assert caught.value.at == 1024
        assert files_of(bytes(data), skip_damaged=True) == [("a", b"1")]

    def test_another_file(self):
        for data in (b"just text", b"just text" * 200, b"\1" * 512):
            with pytest.raises(Malformed):
                files_of(data)

    @given(data=st.binary(min_size=512, max_size=2048))
    def test_noise(self, data):
        with pytest.raises(Malformed):
            files_of(b"x" + data)


class TestGroups:
    def test_neighbours_with_one_name_are_a_sample(self):
        data = regular(
            ("n01/0001.jpg", b"J1"), ("n01/0001.cls", b"7"), ("n01/0002.seg.PNG", b"P"), ("n01/0002.cls", b"8"),
            ("n02/0001.jpg", b"J2"),
        )  # fmt: skip
        assert samples_of(data) == [
            {"__key__": "n01/0001", "jpg": b"J1", "cls": b"7"},
            {"__key__": "n01/0002", "seg.png": b"P", "cls": b"8"},
            {"__key__": "n02/0001", "jpg": b"J2"},
        ]

    def test_what_has_no_extension_and_notes_are_left_out(self):
        data = regular(("__index__", b"x"), ("README", b"x"), ("a.x", b"1"), ("LICENSE", b"x"), ("a.y", b"2"))
        assert samples_of(data) == [{"__key__": "a", "x": b"1", "y": b"2"}]

    def test_long_names_and_chunks(self):
        long = "dir/" * 60 + "sample"
        files = [(f"{long}{n}.{extension}", b"%d" % n * 300) for n in range(5) for extension in ("jpg", "json")]
        for step in (100, 511, 700, 5000):
            got = samples_of(regular(*files), range(step, 20_000, step))
            assert [sample["__key__"] for sample in got] == [f"{long}{n}" for n in range(5)]
            assert all(sample["jpg"] == sample["json"] == b"%d" % n * 300 for n, sample in enumerate(got))

    def test_an_extension_twice_is_damage(self):
        with pytest.raises(Malformed, match="two members with the extension 'jpg'"):
            samples_of(regular(("a.jpg", b"1"), ("a.JPG", b"2")))
