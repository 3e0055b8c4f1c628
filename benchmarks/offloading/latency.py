"""How long it takes from a request at home until the object is at the lender: at rest, and in a burst of pods.

    python -m benchmarks latency [--samples 200] [--pause 0.3] [--pods 1000] [--out FILE] [--json FILE]

Two real control planes (with their request rates raised) and both daemons on this machine; nothing else happens. Each
sample is one object: the clock runs from the moment its POST is sent to the home API server until a watch at the lender
shows it. Clients are plain sockets in threads, so that they add little. As a measure of the machine, two other ways are
taken in turns with it: "by hand", where a thread that watches a namespace at home makes the same object at the lender
at once, which is the least that two API servers take, whatever stands between them; and the lender alone, from a POST
there until its watch shows the object. With ``--pods`` config maps are made as well while a Deployment of so many pods
is being offloaded, from its creation until all of them are Ready, by liqod and in turns with it by hand, in as many
bursts as it takes until there are so many samples. Of fewer than 200 there is no P99: it would be the largest, or the
one before. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import math
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen

from benchmarks.figures.measure import table
from benchmarks.figures.report import save_figures
from benchmarks.offloading.offload import gone, peer
from liqod.kube.connection.config import load
from liqod.model.names import remote_namespace
from tests.real.path import deployment, enabled_namespace, eventually, live_pods, peer_of
from tests.testbed import build, system
from tests.testbed.cluster import Cluster
from tests.testbed.testbed import Testbed

NAMESPACE = "bench"
BY_HAND = "by-hand"
ALONE = "alone"
SAMPLE = "sample-"
PATIENCE = 30.0
TAIL: Final = 200
"""Samples from which there is a P99: of these two are beyond it."""
ROUNDING: Final = 1e-9
"""By what a rank may be off that is a whole number."""
HEAD: Final = ("kind", "way", "samples", "P50 ms", "P90 ms", "P99 ms", "most ms")
OBJECTS: dict[str, dict[str, Any]] = {
    "configmaps": {"data": {"key": "value"}},
    "secrets": {"data": {"key": "dmFsdWU="}},
    "services": {"spec": {"ports": [{"name": "http", "port": 80}], "selector": {"app": "web"}}},
}

ROOM: Final = """
objects = {"count/configmaps" = "1000000", "count/secrets" = "1000000", "services" = "1000000"}
tenant-objects = {"count/configmaps" = "1000000", "count/secrets" = "1000000", "services" = "1000000"}
"""
"""Of ``[hosting]``: as many samples as anybody asks for, where a namespace has 250 services otherwise."""

IDLE: Final = 60.0
"""Seconds after which a connection counts as closed: API servers end those that are idle for some minutes."""

_numbers = itertools.count()


class Caller:
    """One connection to the API server of a kubeconfig, kept open; as another user where one is named."""

    def __init__(self, kubeconfig: Path, user: str = "") -> None:
        config = load(str(kubeconfig))
        context = ssl.create_default_context(cadata=(config.ca_pem or b"").decode())
        if config.client_cert_pem and config.client_key_pem:
            with tempfile.NamedTemporaryFile() as file:
                file.write(config.client_cert_pem + b"\n" + config.client_key_pem)
                file.flush()
                context.load_cert_chain(file.name)
        where = urlsplit(config.server)
        self._headers = {"Content-Type": "application/json"}
        if config.token is not None:
            self._headers["Authorization"] = f"Bearer {config.token()}"
        if user:
            self._headers["Impersonate-User"] = user
        self._connection = http.client.HTTPSConnection(where.hostname or "", where.port, context=context)
        self._used = 0.0

    def _request(self, method: str, path: str, body: str | None = None) -> http.client.HTTPResponse:
        if time.monotonic() - self._used > IDLE:
            self._connection.close()  # the next request opens a new one
        self._connection.request(method, path, body, self._headers)
        answer = self._connection.getresponse()
        self._used = time.monotonic()
        return answer

    def post(self, path: str, body: Any) -> None:
        """Make an object; AssertionError with what the server says otherwise."""
        answer = self._request("POST", path, json.dumps(body))
        said = answer.read()
        assert answer.status == 201, said

    def get(self, path: str) -> bytes:
        """Return what a path holds; AssertionError with what the server says otherwise."""
        answer = self._request("GET", path)
        said = answer.read()
        assert answer.status == 200, said
        return said

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of a watch."""
        answer = self._request("GET", path)
        while line := answer.readline():
            yield line


class Sightings:
    """When objects of one kind were first seen in a namespace, by a thread that follows a watch."""

    def __init__(self, cluster: Cluster, kind: str, namespace: str) -> None:
        self._caller = Caller(cluster.kubeconfig)
        self._path = f"/api/v1/namespaces/{namespace}/{kind}?watch=true"
        self._seen: dict[str, float] = {}
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            for line in self._caller.lines(self._path):
                now = time.monotonic()
                event = json.loads(line)
                if event["type"] == "ADDED":
                    with self._news:
                        self._seen[event["object"]["metadata"]["name"]] = now
                        self._news.notify_all()

    def when(self, name: str) -> float:
        """Wait until an object is seen and return when that was."""
        with self._news:
            there = self._news.wait_for(lambda: name in self._seen, PATIENCE)
            assert there, f"{name} did not come within {PATIENCE:.0f} s"
            return self._seen[name]


class Forwarder:
    """Makes at the lender what is made in a namespace at home: the least that anything between the two can do."""

    def __init__(self, home: Cluster, lender: Cluster, kind: str) -> None:
        self._watcher, self._poster, self._kind = Caller(home.kubeconfig), Caller(lender.kubeconfig), kind
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        path = f"/api/v1/namespaces/{BY_HAND}/{self._kind}"
        with contextlib.suppress(OSError, http.client.HTTPException):
            for line in self._watcher.lines(f"{path}?watch=true"):
                event = json.loads(line)
                name = event["object"]["metadata"]["name"]
                if event["type"] == "ADDED" and name.startswith(SAMPLE):
                    self._poster.post(path, {"metadata": {"name": name}, **OBJECTS[self._kind]})


@frozen
class Taken:
    """The milliseconds that objects of a kind took on one way. Pure."""

    kind: str
    what: str
    took: Sequence[float]

    def row(self) -> list[object]:
        """Return the row of the table."""
        last = percentile(self.took, 0.99) if len(self.took) >= TAIL else "-"
        middle = [percentile(self.took, part) for part in (0.5, 0.9)]
        return [self.kind, self.what, len(self.took), *middle, last, max(self.took)]


class Way:
    """One way to be measured: where objects of a kind are made, and where they are seen."""

    def __init__(self, what: str, kind: str, made: tuple[Cluster, str], seen: tuple[Cluster, str]) -> None:
        self.what = what
        self.kind = kind
        self.took: list[float] = []
        self._poster, self._seen = Caller(made[0].kubeconfig), Sightings(seen[0], kind, seen[1])
        self._path = f"/api/v1/namespaces/{made[1]}/{kind}"

    def sample(self) -> None:
        """Make one object and note the milliseconds until it is seen; not of the first, which opens connections."""
        name = f"{SAMPLE}{next(_numbers)}"
        begin = time.monotonic()
        self._poster.post(self._path, {"metadata": {"name": name}, **OBJECTS[self.kind]})
        self.took.append(1000 * (self._seen.when(name) - begin))

    def taken(self, during: str = "") -> Taken:
        """Return what was measured, and during what."""
        return Taken(self.kind, f"{self.what}{during}", self.took[1:])


def ways(testbed: Testbed, kind: str) -> list[Way]:
    """Return the three ways that objects of a kind are measured on; the first is liqod's."""
    home, lender = testbed[1], testbed[2]
    remote = remote_namespace(NAMESPACE, peer_of(lender, "rome")["metadata"]["name"])
    return [
        Way("two clusters, liqod", kind, (home, NAMESPACE), (lender, remote)),
        Way("two clusters, by hand", kind, (home, BY_HAND), (lender, BY_HAND)),
        Way("lender alone", kind, (lender, ALONE), (lender, ALONE)),
    ]


def percentile(values: Sequence[float], part: float) -> float:
    """Return the nearest-rank percentile of some values; ``part`` is from 0 to 1."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered) - ROUNDING) - 1)]


def figures(found: Sequence[Taken]) -> dict[str, list[float]]:
    """Return every sample by kind and way. Pure."""
    return {f"{one.kind}, {one.what}, ms": list(one.took) for one in found}


def prepare(testbed: Testbed) -> None:
    """Make the namespaces and what is done by hand; the namespace of liqod is offloaded by a first pod."""
    home, lender = testbed[1], testbed[2]
    for cluster, name in ((home, BY_HAND), (lender, BY_HAND), (lender, ALONE)):
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for kind in OBJECTS:
        Forwarder(home, lender, kind)
    home.apply(enabled_namespace(NAMESPACE), deployment("opener", 1, namespace=NAMESPACE))
    eventually("the namespace is offloaded", lambda: live_pods(lender, "opener"), 60)


def measure(testbed: Testbed, samples: int, pause: float) -> list[Taken]:
    """Return what each kind took, every way in its turn."""
    found: list[Taken] = []
    for kind in OBJECTS:
        taken = ways(testbed, kind)
        time.sleep(1)
        for _ in range(samples + 1):
            for way in taken:
                way.sample()
                time.sleep(pause)
        found += [way.taken() for way in taken]
    return found


def measure_burst(testbed: Testbed, pods: int, samples: int, pause: float) -> list[Taken]:
    """Return what config maps took that were made while so many pods were on their way.

    There are bursts, one after the other, until there are so many samples; one at least.
    """
    home = testbed[1]
    taken = ways(testbed, "configmaps")[:2]
    time.sleep(1)
    for way in taken:
        way.sample()
    for number in itertools.count():
        name = f"burst-{number}"
        home.apply(deployment(name, pods, namespace=NAMESPACE))
        ready = 0
        while ready < pods:
            for _ in range(10):
                for way in taken:
                    way.sample()
                    time.sleep(pause / 2)
            ready = home.get("deployment", name, "-n", NAMESPACE)["status"].get("readyReplicas", 0)
        if len(taken[0].took) > samples:
            break
        home.kubectl("delete", "deployment", name, "-n", NAMESPACE, "--wait=false")
        eventually("the pods are gone", partial(gone, testbed, name), 900, 2.0)
    return [way.taken(f", {pods} pods on their way") for way in taken]


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=TAIL)
    parser.add_argument("--pause", type=float, default=0.3)
    parser.add_argument("--pods", type=int, default=0, help="measure in a burst of so many pods, too")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", type=Path, help="where every sample goes (benchmarks/results/)")
    args = parser.parse_args()
    system.require()
    build.ensure()
    with Testbed(2, nodes=False, kwok=1, qps=500) as testbed:
        daemons, _ = peer(testbed, hosting=ROOM)
        testbed.enter()
        try:
            time.sleep(5)
            prepare(testbed)
            found = measure(testbed, args.samples, args.pause) if args.samples else []
            if args.pods:
                found += measure_burst(testbed, args.pods, args.samples, args.pause)
        finally:
            for daemon in daemons:
                daemon.stop()
    text = table(HEAD, [one.row() for one in found])
    print(text)
    if args.out:
        args.out.write_text(text + "\n")
    print("figures:", save_figures("latency", figures(found), args.json, samples=args.samples, pods=args.pods))


if __name__ == "__main__":
    main()
