"""Caches of many like pods: what is equal is kept once, and nothing holds on to the bytes that it came in."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.views import Pod as HostedPod
from liqod.kube.cache.watch_decoder import Decoder, WatchEvent
from liqod.kubelet.common.views import HomePod, RemotePod
from liqod.model.objects.interning import LARGEST, Interner
from liqod.model.objects.pod import Pod as CountedPod
from liqod.model.records.views import ShadowPod

MIB = 1 << 20


def pod(name: str, **labels: str) -> dict[str, Any]:
    """Return a pod as a watch sends it."""
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "labels": {"app": "web", "tier": "front", **labels},
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "main", "image": "web:1", "resources": {"requests": {"cpu": "1"}}}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "pod": {"containers": [{"name": "main"}]},
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def line(thing: dict[str, Any]) -> bytes:
    """Return a line of a watch."""
    return msgspec.json.encode({"type": "ADDED", "object": thing})


def decoded(view: type[Any], thing: dict[str, Any]) -> Any:
    """Return an object as the cache keeps it."""
    change = Decoder(view).line(line(thing))
    assert isinstance(change, WatchEvent)
    return change.object


class SharingTests(SynchronousTestCase):
    """Equal values are kept once."""

    def test_the_first_of_equal_values_is_given_back(self) -> None:
        """Equal values become one, others stay themselves; what is known is bounded and forgetting does no harm."""
        share: Interner[list[int]] = Interner(bytes, most=2)
        first = share([1])
        self.assertIs(share([1]), first)
        self.assertEqual(share([2]), [2])
        self.assertEqual(share([3]), [3])
        self.assertEqual(len(share), 1)
        self.assertEqual((share([1]), first), ([1], [1]))

    def test_what_is_large_is_not_kept(self) -> None:
        """A value whose key is long is given back as it is, and gone with its object; small ones stay shared."""
        share: Interner[list[int]] = Interner(bytes)
        small = share([1])
        large = [2] * (LARGEST + 1)
        self.assertIs(share(large), large)
        self.assertEqual(len(share), 1)
        self.assertIs(share([1]), small)

    def test_labels_that_change_again_and_again(self) -> None:
        """Of one object with ever other labels, thousands of them, one version stays in memory."""
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for version in range(20):
            decoded(HostedPod, pod("a", **{f"k{version}-{number}": "" for number in range(2000)}))
        kept, _ = tracemalloc.get_traced_memory()
        self.assertLess(kept, MIB)

    def test_pods_of_one_owner(self) -> None:
        """Labels, namespace, time of creation and spec of like pods are the same objects; unlike ones are not mixed."""
        for view in (HostedPod, CountedPod):
            one, two = decoded(view, pod("a")), decoded(view, pod("b"))
            self.assertIs(one.spec, two.spec)
            self.assertNotEqual(one.metadata, two.metadata)
            other = pod("c")
            other["spec"]["nodeName"] = "n2"
            self.assertEqual(decoded(view, other).spec.node_name, "n2")
        one, two = decoded(HostedPod, pod("a")).metadata, decoded(HomePod, pod("b")).metadata
        self.assertIs(one.labels, two.labels)
        self.assertIs(one.namespace, two.namespace)
        self.assertIs(one.creation_timestamp, two.creation_timestamp)
        self.assertEqual(decoded(HostedPod, pod("a", tier="back")).metadata.labels, {"app": "web", "tier": "back"})

    def test_what_counts_pods_keeps_no_labels(self) -> None:
        """The cache of every pod of the cluster holds what tells one from another, and what they ask for."""
        counted = decoded(CountedPod, pod("a"))
        self.assertEqual(counted.metadata.labels, {})
        self.assertEqual((counted.metadata.key, counted.metadata.uid), (("shop", "a"), "uid-a"))
        self.assertEqual(counted.metadata.resource_version, "7")

    def test_nothing_holds_on_to_the_bytes(self) -> None:
        """An object in a cache does not keep the line, or the page of a list, that it was decoded from."""
        for view in (ShadowPod, HomePod, RemotePod, HostedPod, CountedPod):
            page = msgspec.json.encode([pod("a"), pod("b")])
            before = sys.getrefcount(page)
            raws = msgspec.json.decode(page, type=list[msgspec.Raw])
            kept = [Decoder(view).object(raw) for raw in raws]
            del raws
            self.assertEqual(sys.getrefcount(page), before, view)
            self.assertEqual(len(kept), 2)
