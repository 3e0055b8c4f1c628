"""What the relay passes on means the same to the API server: ``python -m tests.http1.against_go [--examples 5000]``.

API servers read with Go's net/http. Requests that are right but for a few pieces go through the relay's reading,
judging and writing; what is passed on must be read by Go as the same request, with the relay's own headers, its body
and nothing behind it. Also the bytes that came must mean to Go what the relay understood, no less and no more: what the
relay takes and Go refuses, or ends elsewhere, is a way to smuggle a request. ``tests.contract.test_http_reader`` runs
some of it in every run of the tests.
"""

from __future__ import annotations

import argparse
import base64
import json
import struct
import subprocess
from collections import Counter
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liqod.http1.connection import Connection, MessageLimits
from liqod.http1.errors import Malformed
from liqod.http1.messages import Data, EndOfMessage, Request
from liqod.peering.relay import policy
from liqod.peering.relay.rejection import Rejected
from tests.http1.test_connection import CHUNKED, PIECE, REQUESTS, mangled
from tests.testbed import build, versions

PROGRAM: Final = "http-reader"
OWN: Final = [(b"Host", b"api"), (b"Impersonate-User", b"borrower")]
PASSED: Final = {"Accept", "Connection", "Content-Length", "Content-Type", "Upgrade", "X-Stream-Protocol-Version"}

BODIES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"3\r\nabc\r\n",
                b"0\r\n\r\n",
                b"abc",
                b"1\r\n",
                b"a\r\n0123456789\r\n",
                b"GET / HTTP/1.1\r\nHost: z\r\n\r\n",
            ]
        ),
        PIECE,
    ),
    max_size=5,
).map(b"".join)


class GoReader:
    """A process that reads requests with net/http."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(versions.program(PROGRAM))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def read(self, data: bytes) -> dict[str, Any]:
        """Return what a request means to Go; ``error`` is empty where it means something."""
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None and answers is not None
        pipe.write(struct.pack(">I", len(data)) + data)
        pipe.flush()
        meaning: dict[str, Any] = json.loads(answers.readline())
        for name in ("body", "rest"):
            meaning[name] = base64.b64decode(meaning[name] or "")
        return meaning

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


def passed_on(data: bytes) -> tuple[policy.Call, bytes, bytes, bytes] | None:
    """Return what the relay understood, its body, what it sends and what it leaves unread; None for half a request.

    Raises Malformed or Rejected.
    """
    near, far = Connection("server", MessageLimits()), Connection("client", MessageLimits())
    near.receive(data)
    request = near.next_event()
    if not isinstance(request, Request):
        return None
    call = policy.examine(request)
    sent, body = far.send(policy.forward(b"", call, OWN)), b""
    while (event := near.next_event()) is not None:
        sent += far.send(event)
        if isinstance(event, Data):
            body += bytes(event.data)
        elif isinstance(event, EndOfMessage):
            return call, body, sent, near.unread
    return None


def check(go: GoReader, data: bytes) -> str:
    """Compare one stream of bytes; returns what became of it, raises AssertionError."""
    try:
        passed = passed_on(data)
    except (Malformed, Rejected):
        return "refused by both" if go.read(data)["error"] else "refused, Go would read it"
    if passed is None:
        return "not complete"
    call, body, sent, unread = passed
    meant = (call.method.decode(), call.target.decode(), body)
    seen = go.read(sent)
    assert not seen["error"], (seen, sent)
    assert (seen["method"], seen["target"], seen["body"], seen["rest"]) == (*meant, b""), (seen, sent)
    assert seen["length"] == (-1 if call.length is None else call.length), (seen, sent)
    assert seen["headers"].pop("Impersonate-User") == ["borrower"], (seen, sent)
    assert set(seen["headers"]) <= PASSED, (seen, sent)
    original = go.read(data)
    assert not original["error"], (original, data)
    assert original["length"] == seen["length"] or (not seen["length"] and not call.length), (original, data)
    assert (original["method"], original["target"], original["body"], original["rest"]) == (*meant, unread), (
        original,
        data,
    )
    return "the same to both"


def streams() -> st.SearchStrategy[bytes]:
    """Return requests that are right but for a few pieces, with what comes behind them."""
    return st.tuples(mangled([*REQUESTS, CHUNKED, CHUNKED]), BODIES).map(b"".join)


def main() -> None:
    """Build the reader, compare, and print how many streams came to what."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=5000)
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    build.ensure([PROGRAM])
    go = GoReader()

    @settings(max_examples=options.examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(streams())
    def compare(data: bytes) -> None:
        outcomes[check(go, data)] += 1

    try:
        compare()
    finally:
        go.close()
    for outcome, count in outcomes.most_common():
        print(f"{count:7} {outcome}")


if __name__ == "__main__":
    main()
