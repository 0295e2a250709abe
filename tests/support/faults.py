"""What a `FaultProxy` sees, counts and does wrong: plain data and pure decisions, shared by both of its processes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

KEEP = "keep"
"""As an ETag: leave the server's."""


@dataclass(frozen=True)
class Request:
    """One request as it arrived. `kind` is GET (of an object), HEAD, LIST, PUT, DELETE or POST."""

    kind: str
    bucket: str
    key: str
    range: str | None = None
    if_match: str | None = None


@dataclass(frozen=True)
class Fault:
    """All that is done to one request and its answer; a fresh one does nothing."""

    latency: float = 0.0
    callback: int | None = None
    drop_if_match: bool = False
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    hang: bool = False
    etag: str | None = KEEP
    corrupt_at: int | None = None
    rate: float | None = None
    # Where the body ends or stops. `break_after` None: before the first byte of the answer.
    breaks: Literal["reset", "close", "stall"] | None = None
    break_after: int | None = None
    length: int | None = None

    @property
    def changes_answer(self) -> bool:
        """Whether the answer must be known as a whole before it is passed on."""
        return self.etag != KEEP or any(
            value is not None for value in (self.corrupt_at, self.rate, self.breaks, self.length)
        )

    def and_also(self, other: Fault) -> Fault:
        """Both faults together; where they disagree, the other one wins. Latencies add up."""
        said = {name: value for name, value in vars(other).items() if value != getattr(NO_FAULT, name)}
        return dataclasses.replace(self, **said | {"latency": self.latency + other.latency})


NO_FAULT = Fault()


@dataclass
class Rule:
    """A fault for the requests that match: skips `skip` of them, then hits each `every`-th, up to `times` in all."""

    fault: Fault
    kind: str
    key: str
    times: int | None
    skip: int
    every: int
    seen: int = 0
    hits: int = 0

    def claims(self, request: Request) -> bool:
        """Whether this request is hit; counts it."""
        if self.kind not in {"*", request.kind} or not fnmatchcase(request.key, self.key):
            return False
        self.seen += 1
        late = self.seen - self.skip
        if late <= 0 or (late - 1) % self.every or (self.times is not None and self.hits >= self.times):
            return False
        self.hits += 1
        return True

    def end(self) -> None:
        self.times = self.hits


@dataclass
class Counts:
    """What came in, counted before it is answered, and the bytes of the bodies that went out, before they are sent."""

    kinds: Counter[str] = field(default_factory=Counter)
    keys: dict[str, Counter[str]] = field(default_factory=dict)
    bytes_sent: Counter[str] = field(default_factory=Counter)
    at_once: int = 0
    most_at_once: int = 0

    def arrived(self, request: Request) -> None:
        self.kinds[request.kind] += 1
        self.keys.setdefault(request.kind, Counter())[request.key] += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)

    def answered(self) -> None:
        self.at_once -= 1


class Ledger:
    """Which rules are in force, and what has come in."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._rules: dict[int, Rule] = {}
        self._rules_made = 0
        self._log: list[Request] = []

    def decide(self, request: Request) -> Fault:
        """Count the request and collect what all rules have for it."""
        self.counts.arrived(request)
        self._log.append(request)
        fault = NO_FAULT
        for rule in self._rules.values():
            if rule.claims(request):
                fault = fault.and_also(rule.fault)
        return fault

    def add_rule(self, rule: Rule) -> int:
        self._rules_made += 1
        self._rules[self._rules_made] = rule
        return self._rules_made

    def end_rule(self, number: int) -> None:
        """It hits no more; how often it has is still known."""
        self._rules[number].end()

    def hits(self, number: int) -> int:
        return self._rules[number].hits

    def count(self, kind: str, key: str | None) -> int:
        return self.counts.kinds[kind] if key is None else self.counts.keys.get(kind, Counter())[key]

    def all_counts(self) -> Counts:
        return self.counts

    def requests(self) -> list[Request]:
        return self._log

    def forget_counts(self) -> None:
        """Requests in flight stay in flight."""
        self.counts = Counts(at_once=self.counts.at_once, most_at_once=self.counts.at_once)
        self._log = []

    def clear(self) -> None:
        self._rules.clear()
        self.forget_counts()

    def release(self) -> None:
        """End the rules that let requests wait."""
        for rule in self._rules.values():
            if rule.fault.hang or rule.fault.breaks == "stall":
                rule.end()
