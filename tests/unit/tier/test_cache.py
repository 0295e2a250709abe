"""The cache directory: who may use it, what it is called, how large it may be, and what is said when it is damaged."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.errors import AlreadyExists, Corrupt, Full, HotsetError, InvalidInput, NotFound
from hotset.tier.node import CacheDirectory, DatasetRecord, SourceRecord, cache
from hotset.tier.node.cache import SMALLEST_QUOTA, check_name
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.shelf import open_reader, open_shelf
from tests.support.processes import call
from tests.unit.tier.making import (
    Contents,
    all_units,
    check,
    contents,
    dataset_in,
    filled,
    publish,
    record_of,
    unit_of,
)

NOBODY = 65534


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


class TestMaking:
    def test_a_new_one_is_private(self, tmp_path: Path):
        before = os.umask(0)
        try:
            made = CacheDirectory(tmp_path / "deep" / "cache", quota=SMALLEST_QUOTA)
            filled(dataset_in(made), contents())
            filled(dataset_in(made, "files", layout="files"), contents())
        finally:
            os.umask(before)
        assert mode_of(made.root) == 0o700
        for path in made.root.rglob("*"):
            if path.is_symlink() or made.by_id(record_of("files").identifier).trees in path.parents:
                continue
            assert mode_of(path) == (0o700 if path.is_dir() else 0o600), path

    def test_one_that_a_group_shares(self, tmp_path: Path):
        root = tmp_path / "cache"
        root.mkdir()
        root.chmod(0o2775)
        before = os.umask(0o077)
        try:
            made = CacheDirectory(root)
            filled(dataset_in(made), contents())
            dataset = dataset_in(made, "files", layout="files")
            filled(dataset, contents())
            dataset.claims.touch()
        finally:
            os.umask(before)
        for path in root.rglob("*"):
            if path.is_symlink() or path == dataset.claims:
                continue
            if dataset.trees in path.parents and not path.name.endswith(".ledger"):
                assert mode_of(path) == (0o2775 if path.is_dir() else 0o444), path
            else:
                assert mode_of(path) == (0o2775 if path.is_dir() else 0o664), path

    def test_opening_again_changes_nothing(self, tmp_path: Path):
        CacheDirectory(tmp_path / "cache", quota=SMALLEST_QUOTA + 1)
        before = (tmp_path / "cache" / "hotset.json").stat()
        assert CacheDirectory(tmp_path / "cache").quota == SMALLEST_QUOTA + 1
        assert CacheDirectory(tmp_path / "cache", quota=SMALLEST_QUOTA + 1).quota == SMALLEST_QUOTA + 1
        assert (tmp_path / "cache" / "hotset.json").stat() == before

    def test_the_quota_is_stored_and_can_be_replaced(self, tmp_path: Path):
        CacheDirectory(tmp_path / "cache", quota=10**8)
        assert CacheDirectory(tmp_path / "cache", quota=10**9).quota == 10**9
        assert CacheDirectory(tmp_path / "cache").quota == 10**9

    def test_the_default_quota_is_a_share_of_the_free_space(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(cache, "free_bytes", lambda _path: 10**10)
        assert CacheDirectory(tmp_path / "cache").quota == pytest.approx(0.8 * 10**10, rel=0.01)

    def test_many_processes_make_one(self, tmp_path: Path):
        children = [call(quota_of, str(tmp_path / "cache")) for _ in range(4)]
        quotas = {child.result() for child in children}
        for child in children:
            child.close()
        assert quotas == {CacheDirectory(tmp_path / "cache").quota}


def quota_of(root: str) -> int:
    return CacheDirectory(Path(root)).quota


class TestRefused:
    def test_a_quota_too_small_for_one_pack(self, tmp_path: Path):
        with pytest.raises(Full, match=f"at least {SMALLEST_QUOTA}"):
            CacheDirectory(tmp_path / "cache", quota=SMALLEST_QUOTA - 1)
        assert not (tmp_path / "cache").exists(), "nothing half-done is left"

    def test_a_network_file_system(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(cache, "network_filesystem", lambda _path: "NFS")
        with pytest.raises(InvalidInput, match=r"lies on NFS.*HOTSET_CACHE"):
            CacheDirectory(tmp_path / "cache")

    @pytest.mark.parametrize("below", ["", "deeper"])
    def test_a_file_where_the_directory_should_be(self, tmp_path: Path, below: str):
        (tmp_path / "file").write_text("mine")
        with pytest.raises(InvalidInput, match=r"not a directory.*HOTSET_CACHE"):
            CacheDirectory(tmp_path / "file" / below)

    @pytest.mark.parametrize(
        "settings", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": "x", "quota": 1}', b"\xff\xfe"]
    )
    def test_damaged_settings(self, tmp_path: Path, settings: bytes):
        made = CacheDirectory(tmp_path / "cache", quota=10**8)
        filled(dataset_in(made), contents())
        (tmp_path / "cache" / "hotset.json").write_bytes(settings)
        with pytest.raises(Corrupt, match=r"hotset\.json is damaged.*remove that file"):
            CacheDirectory(tmp_path / "cache")
        (tmp_path / "cache" / "hotset.json").unlink()  # as the message says
        assert list(CacheDirectory(tmp_path / "cache", quota=10**8).names()) == ["memory"]

    def test_a_newer_format(self, tmp_path: Path):
        CacheDirectory(tmp_path / "cache", quota=10**8)
        newer = json.dumps({"format": 2, "quota": 10**8, "more": "things"})
        (tmp_path / "cache" / "hotset.json").write_text(newer)
        with pytest.raises(InvalidInput, match=r"format 2.*newer hotset.*upgrade"):
            CacheDirectory(tmp_path / "cache", quota=10**9)
        assert (tmp_path / "cache" / "hotset.json").read_text() == newer


@pytest.mark.skipif(os.geteuid() != 0, reason="platform: only root can act as another user")
class TestOtherUsers:
    @pytest.fixture
    def public(self):
        """A directory that others can enter; those of pytest are for their owner only."""
        with tempfile.TemporaryDirectory(prefix="hotset-test-") as directory:
            Path(directory).chmod(0o755)
            yield Path(directory)

    def test_a_directory_of_somebody_else(self, public: Path):
        CacheDirectory(public / "cache")
        with call(as_nobody, str(public / "cache")) as child:
            assert re.search(r"Denied.*belongs to user 0.*HOTSET_CACHE", child.result())

    def test_a_directory_of_somebody_else_that_all_may_write(self, public: Path):
        """Not for the group only: whoever wrote there could have put anything into it. A system's directory is root's."""
        (public / "cache").mkdir()
        os.chown(public / "cache", NOBODY - 1, NOBODY - 1)
        (public / "cache").chmod(0o707)
        with call(as_nobody, str(public / "cache")) as child:
            assert re.search(rf"Denied.*belongs to user {NOBODY - 1}", child.result())

    def test_a_place_where_it_cannot_be_made(self, public: Path):
        with call(as_nobody, str(public / "cache")) as child:
            assert re.search(r"Denied.*cannot make the cache directory.*HOTSET_CACHE", child.result())

    @pytest.mark.parametrize("layout", ["packs", "files"])
    def test_a_group_shares_a_directory(self, public: Path, layout: str):
        """Root begins, another user of the group goes on, and both read what the other has stored."""
        root = public / "cache"
        root.mkdir()
        os.chown(root, 0, NOBODY)
        root.chmod(0o2775)
        before = os.umask(0o077)
        try:
            made = CacheDirectory(root, quota=10**8)
            dataset = dataset_in(made, layout=layout)  # type: ignore[arg-type]
            snapshot = publish(dataset, contents())
            half_fill(dataset, snapshot.digest, 0, contents())
        finally:
            os.umask(before)
        with call(fill_as_nobody, str(root)) as child:
            assert child.result() == "filled"
        assert check(open_reader(dataset, snapshot), snapshot, contents()) == len(all_units(snapshot))


def become_nobody() -> None:
    os.umask(0o077)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def as_nobody(root: str) -> str:
    become_nobody()
    try:
        CacheDirectory(Path(root))
    except HotsetError as error:
        return f"{type(error).__name__}: {error}"
    return "opened"


def fill_as_nobody(root: str) -> str:
    objects = contents()  # imports what that user might not be able to read
    become_nobody()
    dataset = CacheDirectory(Path(root)).dataset("memory")
    current = dataset.current()
    assert current is not None
    half_fill(dataset, current.digest, 1, objects)
    return "filled"


def half_fill(dataset: DatasetDirectory, digest: str, half: int, objects: Contents) -> None:
    snapshot, lease = dataset.open(digest)
    shelf = open_shelf(dataset, snapshot)
    for number, unit in all_units(snapshot)[half::2]:
        assert shelf.admit(number)
        assert shelf.write(number, unit, unit_of(snapshot, objects, number, unit))
        assert shelf.finish(number) == []
    shelf.close()
    lease.release()


class TestNames:
    @pytest.fixture
    def made(self, tmp_path: Path) -> CacheDirectory:
        return CacheDirectory(tmp_path / "cache", quota=10**8)

    @pytest.mark.parametrize("name", ["a", "train", "A.b-c_d", "0", "x" * 100])
    def test_good_ones(self, made: CacheDirectory, name: str):
        dataset_in(made, name)
        assert list(made.names()) == [name]

    @pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "-x", "a/b", "a b", "é", "x" * 101, "a\n", "a\0"])
    def test_bad_ones(self, made: CacheDirectory, name: str):
        with pytest.raises(InvalidInput, match="letters, digits"):
            dataset_in(made, name)
        with pytest.raises(InvalidInput):
            made.dataset(name)

    @given(st.text(max_size=20))
    def test_no_name_leads_out_of_the_directory(self, name: str):
        try:
            assert os.path.basename(check_name(name)) == name
        except InvalidInput:
            assert (
                not name.isascii()
                or not name[:1].isalnum()
                or not set(name) <= set(name) & set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
            )

    def test_an_unknown_name_lists_those_there_are(self, made: CacheDirectory):
        with pytest.raises(NotFound, match="there are: none"):
            made.dataset("absent")
        dataset_in(made, "here")
        dataset_in(made, "there")
        with pytest.raises(NotFound, match=r"no dataset 'absent'.*there are: here, there"):
            made.dataset("absent")

    def test_the_same_name_for_the_same_dataset_is_the_same_dataset(self, made: CacheDirectory):
        one = dataset_in(made)
        publish(one, contents())
        assert dataset_in(made).current() == one.current()

    def test_the_same_name_for_another_source_is_an_error_that_names_the_first(self, made: CacheDirectory):
        made.register("train", record_of("first"))
        with pytest.raises(AlreadyExists, match=r"'train' stands for s3://first/data.*hotset drop train"):
            made.register("train", record_of("second"))
        assert made.dataset("train").record() == record_of("first")

    def test_a_name_whose_dataset_was_dropped_is_free(self, made: CacheDirectory):
        made.register("train", record_of("first")).drop()
        assert made.register("train", record_of("second")).record() == record_of("second")

    def test_two_names_for_one_dataset_share_it(self, made: CacheDirectory):
        one, two = made.register("one", record_of()), made.register("two", record_of())
        assert one.path == two.path
        assert made.names_of(one.identifier) == ["one", "two"]
        assert made.forget("one") is False
        assert made.forget("two") is True
        assert list(made.names()) == []

    def test_the_other_layout_is_an_error_that_says_what_to_do(self, made: CacheDirectory):
        made.register("one", record_of(layout="packs"))
        with pytest.raises(AlreadyExists, match=r"layout 'packs'.*convert"):
            made.register("two", record_of(layout="files"))
        assert list(made.names()) == ["one"]

    @pytest.mark.parametrize("call", ["mkdir", "rename", "symlink"])
    def test_a_full_disk_leaves_nothing_half_done(
        self, made: CacheDirectory, monkeypatch: pytest.MonkeyPatch, call: str
    ):
        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(Full, match=r"no room left.*HOTSET_CACHE.*HOTSET_QUOTA"):
                dataset_in(made)
        assert list(made.names()) == []
        assert list(made.root.rglob(".*")) == []
        if call != "symlink":  # the dataset is whole then, and has no name yet
            assert list((made.root / "datasets").iterdir()) == []
        publish(dataset_in(made), contents())

    def test_eight_processes_register_at_once(self, made: CacheDirectory):
        """One dataset under one name; of two datasets under one name, exactly one."""
        children = [call(register, str(made.root), "same", "same") for _ in range(4)]
        children += [call(register, str(made.root), "rival", f"rival{n % 2}") for n in range(4)]
        results = [child.result() for child in children]
        for child in children:
            child.close()
        assert results[:4] == [record_of("same").identifier] * 4
        winner = made.dataset("rival").identifier
        assert sorted(results[4:]) == sorted([winner, winner, "AlreadyExists", "AlreadyExists"])
        assert not list(made.root.rglob(".*"))


def register(root: str, name: str, source: str) -> str:
    try:
        return CacheDirectory(Path(root)).register(name, record_of(source)).record().identifier
    except AlreadyExists:
        return "AlreadyExists"


class TestRecords:
    def test_a_record_comes_back(self, tmp_path: Path):
        record = DatasetRecord(
            (
                SourceRecord("s3://b/é", "s3://host/b/é", "images", {"region": "x"}),
                SourceRecord("/data", "file:///data", "labels"),
            ),
            include=("*.jpg",),
            exclude=("tmp/**",),
            layout="files",
            trust_domain="lab",
        )
        dataset = CacheDirectory(tmp_path / "cache").register("name", record)
        assert dataset.record() == record

    @pytest.mark.parametrize(
        "other",
        [
            DatasetRecord((SourceRecord("s3://x", "other"),)),
            DatasetRecord((SourceRecord("s3://x", "same", path="below"),)),
            DatasetRecord((SourceRecord("s3://x", "same"), SourceRecord("s3://x", "same", path="b"))),
            DatasetRecord((SourceRecord("s3://x", "same"),), include=("a",)),
            DatasetRecord((SourceRecord("s3://x", "same"),), exclude=("a",)),
            DatasetRecord((SourceRecord("s3://x", "same"),), trust_domain="other"),
        ],
    )
    def test_what_makes_another_dataset(self, other: DatasetRecord):
        assert DatasetRecord((SourceRecord("s3://x", "same"),)).identifier != other.identifier

    def test_what_does_not(self):
        """How a source is spelled, the layout and options that hold no identity: the same bytes, shared."""
        one = DatasetRecord((SourceRecord("s3://x", "same"),))
        two = DatasetRecord((SourceRecord("S3://x/", "same", options={"region": "y"}),), layout="files")
        assert one.identifier == two.identifier

    @pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b'{"sources": [], "surprise": 1}', b"\xff"])
    def test_a_damaged_record(self, tmp_path: Path, damage: bytes):
        made = CacheDirectory(tmp_path / "cache")
        dataset = dataset_in(made)
        (dataset.path / "dataset.json").write_bytes(damage)
        with pytest.raises(Corrupt, match=r"dataset\.json is damaged.*drop the dataset"):
            dataset.record()
        with pytest.raises(Corrupt):
            dataset_in(made)
        dataset.drop()  # as the message says
        assert dataset_in(made).record() == record_of()
