"""Makes the events of a soak happen on two real clusters, with pods, namespaces and objects that come and go beside."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from tests.real.borrowing import ROME, Borrowing, crash, freeze, thaw
from tests.real.path import NAMESPACE, deployment, enabled_namespace, eventually, gone, offloaded
from tests.real.soak.plan import Event
from tests.testbed.cluster import Cluster

TABLE: Final = "inet soak"
OBJECTS: Final = 5
"""Config maps, and secrets, that come and go with the pods."""
WITHIN: Final = 180.0

Maker = Callable[[Borrowing, Event], None]


def happen(sides: Borrowing, event: Event, number: int) -> None:
    """Have one event happen while pods come, and have the pods go."""
    with _churn(sides, event.pods, f"churn-{number}"):
        MAKERS[event.kind](sides, event)


@contextmanager
def _churn(sides: Borrowing, pods: int, name: str) -> Iterator[None]:
    """Have pods and objects come when a block begins, be there when it ends, and go then; a namespace as well."""
    home, lender = sides[ROME].cluster, sides.other(ROME).cluster
    with ExitStack() as stack:
        stack.callback(_clear, home, name)
        home.apply(enabled_namespace(name), deployment(name, pods), deployment(name, 1, namespace=name))
        home.apply(*_objects(name))
        yield
        eventually(f"the pods of {name} run", partial(offloaded, home, lender, name, pods + 1), WITHIN, 0.5)
    eventually(f"the pods of {name} are gone", partial(gone, home, lender, name), WITHIN, 0.5)
    eventually(f"the namespace {name} is gone", lambda: not any(map(partial(_has, name), (home, lender))), WITHIN, 0.5)


def _objects(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number in range(OBJECTS):
        meta = {"name": f"{name}-{number}", "namespace": NAMESPACE, "labels": {"churn": name}}
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"n": name}})
        found.append({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"n": name}})
    return found


def _clear(home: Cluster, name: str) -> None:
    home.kubectl("delete", "deployment", "-n", NAMESPACE, name, "--ignore-not-found", "--wait=false")
    home.kubectl("delete", "configmap,secret", "-n", NAMESPACE, "-l", f"churn={name}", "--wait=false")
    home.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")


def _has(name: str, cluster: Cluster) -> bool:
    """Tell whether a cluster has a namespace, be it under the name that a lender gives it."""
    found = [one["metadata"]["name"] for one in cluster.get("namespaces")["items"]]
    return any(one == name or one.startswith(f"{name}-") for one in found)


def _rest(sides: Borrowing, event: Event) -> None:
    """Do nothing."""


def _cut(sides: Borrowing, event: Event) -> None:
    """Let no packet pass between the hosts for a while."""
    cluster, other = sides[event.side].cluster, sides.other(event.side).cluster.address
    rules = (
        f"chain input {{ type filter hook input priority -300; ip saddr {other} drop; }};"
        f" chain output {{ type filter hook output priority -300; ip daddr {other} drop; }};"
    )
    with ExitStack() as stack:
        stack.callback(cluster.run, ["nft", f"delete table {TABLE}"])
        cluster.run(["nft", f"table {TABLE} {{ {rules} }}"])
        time.sleep(event.seconds)


def _kill_standby(sides: Borrowing, event: Event) -> None:
    """End the second daemon of a side as a crash would."""
    crash(sides.standbys[event.side])
    sides.standbys[event.side].start()


def _lease(sides: Borrowing, event: Event) -> None:
    """Have the second daemon lead for a while, because the first one slept; in the end it gives the lease back."""
    _second_leads(sides, event.side)
    time.sleep(event.seconds)
    second = sides.standbys[event.side]
    with ExitStack() as stack:
        stack.callback(second.start)
        second.stop()
        _first_leads(sides, event.side)


def _kill_leader(sides: Borrowing, event: Event) -> None:
    """Have the second daemon lead, and end it as a crash would."""
    _second_leads(sides, event.side)
    second = sides.standbys[event.side]
    with ExitStack() as stack:
        # Not before: it would find its own name in the lease.
        stack.callback(second.start)
        crash(second)
        _first_leads(sides, event.side)


def _key(sides: Borrowing, event: Event) -> None:
    """Give a cluster another key."""
    sides[event.side].liqodctl("rotate-key", "--timeout=100", timeout=150)


def _tunnel_key(sides: Borrowing, event: Event) -> None:
    """Give a tunnel another key, and wait until it is in use."""
    daemon = sides[event.side]
    key = json.loads(daemon.liqodctl("rotate-tunnel-key", "-o", "json"))["nextKey"]
    shown = ["wg", "show", "liqod", "public-key"]
    eventually("the tunnel has the next key", lambda: daemon.cluster.host.run(shown).strip() == key, WITHIN, 0.5)


MAKERS: Final[Mapping[str, Maker]] = {
    "rest": _rest,
    "cut": _cut,
    "kill standby": _kill_standby,
    "kill leader": _kill_leader,
    "lease": _lease,
    "key": _key,
    "tunnel key": _tunnel_key,
}
"""How each kind of event is made."""


def is_led_by_first(sides: Borrowing, side: str) -> bool:
    """Tell whether the first daemon of a side leads."""
    return sides.leader(side) == f"{sides[side].cluster.name}-{sides[side].identity}"


def _first_leads(sides: Borrowing, side: str) -> None:
    eventually(f"the first daemon of {side} leads", partial(is_led_by_first, sides, side), WITHIN)


def _second_leads(sides: Borrowing, side: str) -> None:
    first, second = sides[side], sides.standbys[side]
    wanted = f"{second.cluster.name}-{second.identity}"
    freeze(first)
    try:
        # No longer than that: one that sleeps keeps its ports, and the other one of this host gives the lease back.
        eventually(f"the first daemon of {side} leads no more", lambda: not is_led_by_first(sides, side), WITHIN, 0.05)
    finally:
        thaw(first)
    eventually(f"the second daemon of {side} leads", lambda: sides.leader(side) == wanted, WITHIN)
