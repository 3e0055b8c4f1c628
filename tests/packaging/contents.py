"""What a simulated cluster holds, to be compared before and after."""

from __future__ import annotations

from kubesandbox.cluster import SandboxCluster


def objects_of(cluster: SandboxCluster) -> set[str]:
    """Return kind, namespace and name of everything in the cluster but events."""
    store = cluster.store
    return {
        f"{kind} {stored.object['metadata'].get('namespace', '')}/{stored.object['metadata']['name']}"
        for kind in store.resources()
        for stored in store.items(kind)
        if stored.object.get("kind") != "Event"
    }
