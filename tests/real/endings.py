"""What the tests of a peering's end share: peer, offload, end it, compare all that the API servers keep."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from tests.real.daemons import Daemon
from tests.real.pair import PairTests
from tests.real.path import (
    NAMESPACE,
    deployment,
    enabled_namespace,
    eventually,
    in_phase,
    node_ready,
    offloaded,
    peer_of,
    trust_each_other,
)
from tests.testbed.cluster import Cluster

APP = "web"
SYSTEM = ("-n", "liqo-system")
TOMBSTONE = "ConfigMap liqo-system/liqod-unpeered"
# What comes and goes by itself, or is computed again at each look.
FLEETING = ("events", "leases", "componentstatuses", "nodes.metrics", "pods.metrics")
CHANGING = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
"""What every object gets again when it is made again, or when it is written."""


def dump(cluster: Cluster) -> dict[str, Any]:
    """Return everything that a cluster keeps, of every kind that it lists, without what every write changes."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    wanted = ",".join(kind for kind in kinds if not kind.startswith(FLEETING))
    found = {}
    for body in json.loads(cluster.kubectl("get", wanted, "-A", "-o", "json"))["items"]:
        meta = body["metadata"]
        if body["kind"] == "CertificateSigningRequest":
            continue
        kept = {key: value for key, value in body.items() if key not in ("metadata", "status")}
        kept["metadata"] = {key: value for key, value in meta.items() if key not in CHANGING}
        found[f"{body['kind']} {meta.get('namespace', '')}/{meta['name']}"] = kept
    return found


def ending(cluster: Cluster) -> dict[str, list[str]]:
    """Return the namespaces that are being deleted, with what they wait for."""
    found = [one for one in cluster.get("namespaces")["items"] if "deletionTimestamp" in one["metadata"]]
    return {
        one["metadata"]["name"]: [
            str(c.get("message")) for c in one["status"].get("conditions", []) if c["status"] == "True"
        ]
        for one in found
    }


class EndingTests(PairTests):
    """Steps that peer and end it, several times over on the same clusters; ``before`` is what was there without."""

    before: list[dict[str, Any]]

    def peer(self) -> None:
        """Trust each other, and run two pods of rome in milan."""
        for daemon, other in ((self.rome, self.milan), (self.milan, self.rome)):
            seen = partial(peer_of, daemon.cluster, other.name)
            eventually("the peer is a stranger", partial(in_phase, seen, "TrustPending"))
        type(self).before = [dump(daemon.cluster) for daemon in (self.rome, self.milan)]
        trust_each_other(self.rome, self.milan)
        for daemon in (self.rome, self.milan):
            eventually("the virtual node is Ready", partial(node_ready, daemon.cluster))
        self.rome.cluster.apply(enabled_namespace(), deployment(APP, 2))
        eventually("two pods run at milan", lambda: offloaded(self.rome.cluster, self.milan.cluster, APP, 2))

    def as_before(self, daemon: Daemon, before: dict[str, Any], allowed: tuple[str, ...] = ()) -> None:
        """Have the peering's end show in the API server: nothing more, nothing less, nothing else than before."""

        def same() -> bool:
            now = {name: body for name, body in dump(daemon.cluster).items() if name not in allowed}
            left, missing = sorted(now.keys() - before), sorted(before.keys() - now)
            self.assertFalse(left or missing, f"left: {left}, missing: {missing}, namespaces: {ending(daemon.cluster)}")
            for name, body in before.items():
                self.assertEqual(now[name], body, name)
            return True

        eventually(f"{daemon.name} is as it was before", same, 180, 1.0)

    def tidy(self) -> None:
        """Remove what belongs to the user."""
        self.rome.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s", timeout=130)

    def forget(self) -> None:
        """Remove what rome remembers of peerings that it ended."""
        self.rome.cluster.kubectl("delete", "configmap", *SYSTEM, "liqod-unpeered", "--ignore-not-found")


def peer_id(before: dict[str, Any]) -> str:
    """Return the cluster ID of the peer in a dump."""
    names = [name for name in before if name.startswith("ForeignCluster ")]
    if not names:
        raise LookupError("no ForeignCluster in the dump")
    return names[0].partition("/")[2]
