"""Sources made of sources."""

from __future__ import annotations

import pytest

from hotset.base.retry import RetryPolicy
from hotset.errors import Changed, InvalidInput, NotFound, Unavailable
from hotset.source import CombinedSource, RateLimited, Retrying, filtered
from hotset.source.listing import Pages
from hotset.testing.source import FaultySource, MemorySource, SlowSource, listed

POLICY = RetryPolicy(attempts=4)


class NoWait:
    """Never stops anybody, and notes how long they wanted to wait."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        return False


def retrying(source, **kwargs):
    return Retrying(source, POLICY, cancel=NoWait(), **kwargs)


class PagedSource(MemorySource):
    """Lists three pages; the requests named in ``failing`` fail."""

    def __init__(self, failing: set[int]) -> None:
        super().__init__({f"{n}": b"x" for n in range(6)}, batch=2)
        self.requests = 0
        self.failing = failing

    def list(self):
        batches = list(super().list())

        def fetch(position: int):
            self.requests += 1
            if self.requests in self.failing:
                raise Unavailable("page")
            return batches[position], position + 1 if position + 1 < len(batches) else None

        return Pages(fetch, 0)


class BrokenOnTheWay(MemorySource):
    def list(self):
        yield from list(super().list())[:1]
        raise Unavailable("in the middle")


class TestRetrying:
    def test_reads_again(self):
        memory = MemorySource({"a": b"content"})
        told = []
        faulty = FaultySource(memory, lambda _key, n: Unavailable("no", throttled=True) if n < 3 else None)
        source = retrying(faulty, on_retry=lambda error, _pause: told.append(error.throttled))
        assert bytes(source.read("a", 0, 7, listed(memory)["a"])) == b"content"
        assert faulty.reads["a"] == 4
        assert told == [True] * 3

    def test_gives_up(self):
        memory = MemorySource({"a": b"content"})
        faulty = FaultySource(memory, lambda _key, _n: Unavailable("no"))
        with pytest.raises(Unavailable, match="gave up after 4 attempts"):
            retrying(faulty).read("a", 0, 7, listed(memory)["a"])
        assert faulty.reads["a"] == 4

    @pytest.mark.parametrize("error", [Changed("x"), NotFound("x"), InvalidInput("x")])
    def test_does_not_repeat_what_cannot_help(self, error):
        memory = MemorySource({"a": b"content"})
        faulty = FaultySource(memory, lambda _key, _n: error)
        with pytest.raises(type(error)):
            retrying(faulty).read("a", 0, 7, listed(memory)["a"])
        assert faulty.reads["a"] == 1

    def test_continues_an_interrupted_listing_where_it_stopped(self):
        source = PagedSource(failing={2, 3, 5})
        assert sorted(listed(retrying(source))) == list("012345")
        assert source.requests == 6

    def test_begins_a_listing_anew_while_nothing_was_handed_out(self):
        faulty = FaultySource(MemorySource({"a": b""}), list_faults=[Unavailable("x"), Unavailable("y")])
        assert list(listed(retrying(faulty))) == ["a"]

    def test_never_takes_a_broken_listing_for_a_complete_one(self):
        source = retrying(BrokenOnTheWay({f"{n}": b"" for n in range(6)}, batch=2))
        with pytest.raises(Unavailable, match="in the middle"):
            listed(source)


class TestCombined:
    def test_keys_begin_with_the_mount_path(self):
        one, two = MemorySource({"x": b"one"}), MemorySource({"x": b"two", "y/z": b"2"})
        source = CombinedSource([("a", one), ("b/c/", two)])
        infos = listed(source)
        assert sorted(infos) == ["a/x", "b/c/x", "b/c/y/z"]
        assert bytes(source.read("b/c/x", 0, 3, infos["b/c/x"])) == b"two"
        assert bytes(source.newest("a/x")) == b"one"

    def test_a_key_of_no_source_is_not_found(self):
        source = CombinedSource([("a", MemorySource({"x": b"one"}))])
        with pytest.raises(NotFound, match="ab/x"):
            source.newest("ab/x")

    def test_one_alone_is_itself(self):
        memory = MemorySource({"x": b"one"}, name="me")
        assert CombinedSource([("", memory)]).identity == memory.identity

    def test_the_identity_names_all_places_and_sources(self):
        def identity(*mounts):
            return CombinedSource([(path, MemorySource(name=name)) for path, name in mounts]).identity

        assert identity(("a", "1"), ("b", "2")) == identity(("b", "2"), ("a", "1"))
        assert len({identity(("a", "1"), ("b", "2")), identity(("a", "2"), ("b", "1")), identity(("a", "1"))}) == 3

    @pytest.mark.parametrize(
        "paths", [[], ["a", "a/"], ["a", "a/b"], ["", "a"], ["..", "b"], ["a//b"], ["a\nb"], ["a", "a-b", "a/c"]]
    )
    def test_paths_that_collide_are_refused(self, paths):
        with pytest.raises(InvalidInput):
            CombinedSource([(path, MemorySource()) for path in paths])

    def test_neighbours_do_not_collide(self):
        assert CombinedSource([(path, MemorySource()) for path in ("a", "ab", "a-b", "b/a")])

    def test_closes_all_even_if_one_fails(self):
        closed = []

        class Closing(MemorySource):
            def close(self):
                closed.append(self._name)
                raise OSError(self._name)

        with pytest.raises(OSError, match="1"):
            CombinedSource([("a", Closing(name="1")), ("b", Closing(name="2"))]).close()
        assert sorted(closed) == ["1", "2"]


def test_filtered_lists_only_what_is_wanted():
    memory = MemorySource({"a.jpg": b"", "b.txt": b"", "c/d.jpg": b""})
    assert sorted(listed(filtered(memory, include=["*.jpg"], exclude=["c/"]))) == ["a.jpg"]
    assert filtered(memory) is memory


def test_rate_limited_charges_bytes():
    memory = MemorySource({"a": b"x" * 1000})
    wait = NoWait()
    source = RateLimited(memory, 500, cancel=wait, clock=lambda: 0.0)
    info = listed(source)["a"]
    source.read("a", 0, 1000, info)
    source.read("a", 0, 500, info)
    source.newest("a")
    source.read("a", 0, 1, info)
    assert wait.pauses == [1.0, 2.0, 4.0]


def test_slow_source_waits_at_its_gate():
    passed = []
    source = SlowSource(MemorySource({"a": b"x"}), lambda: passed.append(1))
    info = listed(source)["a"]
    source.read("a", 0, 1, info)
    assert len(passed) == 2
