"""Credentials that end while a load is under way."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from tests.contract.standins import Shelf
from tests.support.datasets import image_tree
from tests.support.opening import give_up_soon, read_all, use
from tests.support.processes import wait_until

pytestmark = pytest.mark.integration

DATA = dict(image_tree(40, 3000))
#: Credentials are renewed so long before their end, by `Renewed` and by obstore, which asks it.
EARLY = timedelta(minutes=5)


class Guarded(Shelf):
    """A bucket, and the role of a container that may read it: its tokens are due for renewal one second after they were
    given. Nobody checks signatures here, but a token is refused once the test says that it has ended.
    """

    def __init__(self) -> None:
        super().__init__(bucket="some-bucket")
        self.due: list[datetime] = []  #: of each token that was given, when it is to be renewed
        self.ended = 0  #: so many of the first tokens are refused
        self.taken: list[int] = []  #: the tokens with which objects were read
        self.hold_after = 8
        self.holds = threading.Event()
        self.released = threading.Event()

    def answer(self, method: str, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        if target == "/role":
            return 200, {}, json.dumps(self._credentials()).encode()
        token = int(headers.get("x-amz-security-token", 0))
        if token <= self.ended:
            return 400, {}, b"<Error><Code>ExpiredToken</Code></Error>"
        if "list-type" not in target:
            self.taken.append(token)
            if len(self.taken) > self.hold_after:
                self.holds.set()
                self.released.wait()
        return super().answer(method, target, headers)

    def _credentials(self) -> dict[str, str]:
        self.due.append(datetime.now(UTC) + timedelta(seconds=1))
        ends = (self.due[-1] + EARLY).isoformat()
        return {"AccessKeyId": "a", "SecretAccessKey": "b", "Token": str(len(self.due)), "Expiration": ends}


@pytest.fixture
def guarded():
    with Guarded() as guarded:
        guarded.objects |= DATA
        yield guarded
        guarded.released.set()


def test_a_token_that_ends_during_a_load_is_renewed_in_it(guarded, monkeypatch, no_leaks):
    role = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{guarded.endpoint}/role"}
    # One request at a time: while the server holds it, no other one is on its way with the old token.
    use(monkeypatch, {**role, "AWS_ENDPOINT_URL": guarded.endpoint, "HOTSET_MAX_REQUESTS": "1"})
    with give_up_soon("s3://some-bucket") as ds, ThreadPoolExecutor(1) as pool:
        loading = pool.submit(ds.load)
        assert guarded.holds.wait(30)
        given = len(guarded.due)
        # obstore may have asked just before; it then asks again a tenth of a second later at the earliest
        renewed = guarded.due[-1] + timedelta(seconds=0.2)
        wait_until(lambda: datetime.now(UTC) > renewed, what="the token to be due for renewal")
        guarded.ended = given
        guarded.released.set()
        loading.result(60)
        assert ds.stats().fill.failed == 0
        assert read_all(ds) == DATA
    assert guarded.answer("GET", "/some-bucket/any", {"x-amz-security-token": str(given)})[0] == 400
    before, after = guarded.taken[: guarded.hold_after + 1], guarded.taken[guarded.hold_after + 1 :]
    assert max(before) <= given < min(after)
    assert len(guarded.taken) == len(DATA)
