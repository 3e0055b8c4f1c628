"""``--dry-run``: the records of a command, applied as kubectl applies, leave what the command itself leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st
from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from liqod.cli.console.errors import AMBIGUOUS, IN_USE, NO_SUCH_OBJECT
from liqod.cli.console.records import LAST_APPLIED, applicable
from liqod.demo.access import client_config
from liqod.identity.certs import generate
from liqod.identity.pairing import PREFIX
from liqod.identity.store import to_secret
from liqod.kube import manifests
from liqod.kube.client import Client
from liqod.kube.errors import NotFound
from liqod.kube.resources import (
    ADVERTISEMENTS,
    FOREIGNCLUSTERS,
    NAMESPACEOFFLOADINGS,
    NAMESPACES,
    NODES,
    RESOURCESLICES,
    SECRETS,
    VIRTUALNODES,
)
from liqod.kube.writing.merge_patch import apply_merge_patch
from liqod.model.ids import ClusterID
from tests.cli.fork_server import warm

REACTOR: Any = reactor
NOW = datetime.now(UTC)
KEY = generate(ClusterID("c2"), NOW).fingerprint
IDENTITIES = {one: to_secret(generate(ClusterID(one), NOW)) for one in ("c1", "c3")}
ALL = (
    ADVERTISEMENTS,
    FOREIGNCLUSTERS,
    NAMESPACEOFFLOADINGS,
    NAMESPACES,
    NODES,
    RESOURCESLICES,
    SECRETS,
    VIRTUALNODES,
)
KINDS = {one.kind: one for one in ALL}
TENANT = "liqo-tenant-c2"
LEAVES = st.sampled_from(["a", "b", "", 1, True])
Body = dict[str, Any]


def objects(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Body]:
    """Return objects of few names, so that they often have the same fields."""
    names = st.sampled_from("xyz")
    inside = st.dictionaries(names, leaves | st.dictionaries(names, leaves, min_size=1, max_size=3), max_size=3)
    return st.dictionaries(names, leaves | inside.filter(bool), max_size=3)


def three_way(original: Mapping[str, Any], modified: Mapping[str, Any], current: Mapping[str, Any]) -> Body:
    """Return the patch of ``kubectl apply``: ``CreateThreeWayJSONMergePatch`` of k8s.io/apimachinery."""
    return _overlay(_pick(_diff(current, modified), nulls=False), _pick(_diff(original, modified), nulls=True))


def _diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> Body:
    """Return a merge patch as its ``jsonpatch.CreateMergePatch`` makes it: an explicit null of ``after`` stays."""
    made: Body = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := _diff(old, value):
                made[name] = inner
        elif name not in before or value != old:
            made[name] = value
    return made


def _pick(patch: Mapping[str, Any], *, nulls: bool) -> Body:
    made: Body = {}
    for name, value in patch.items():
        if isinstance(value, Mapping):
            inner = _pick(value, nulls=nulls)
            if inner or not (nulls or value):
                made[name] = inner
        elif (value is None) == nulls:
            made[name] = value
    return made


def _overlay(one: Mapping[str, Any], two: Mapping[str, Any]) -> Body:
    made = dict(one)
    for name, value in two.items():
        old = made.get(name)
        made[name] = _overlay(old, value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value
    return made


def pruned(body: Mapping[str, Any]) -> Body:
    """Return an object without empty objects in it."""
    inside = {name: pruned(value) if isinstance(value, Mapping) else value for name, value in body.items()}
    return {name: value for name, value in inside.items() if value != {}}


def without(body: Mapping[str, Any]) -> Body:
    """Return an object without what a server sets, what kubectl keeps for itself, and empty annotations."""
    metadata = dict(body["metadata"])
    for name in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"):
        metadata.pop(name, None)
    annotations = {k: v for k, v in (metadata.pop("annotations", None) or {}).items() if k != LAST_APPLIED and v}
    if body["kind"] == "Node":
        body = {"spec": {"unschedulable": body["spec"].get("unschedulable", False)}}  # its taints have dates
    return {**body, "metadata": {**metadata, **({"annotations": annotations} if annotations else {})}}


class ApplicableTests(SynchronousTestCase):
    """What makes a record of a patch."""

    @given(objects(LEAVES), objects(LEAVES), objects(LEAVES | st.none()))
    def test_same_as_the_patch(self, applied: Body, more: Body, patch: Body) -> None:
        """Whatever was applied earlier and added since, apply leaves what the merge patch would have left."""
        live = apply_merge_patch(more, applied)
        record = applicable(applied, live, patch)
        after = apply_merge_patch(live, three_way(applied, record, live))
        self.assertEqual(pruned(after), pruned(apply_merge_patch(live, patch)))

    def test_annotations(self) -> None:
        """An annotation is emptied, since kubectl takes null for an empty text in any case."""
        patch = {"metadata": {"annotations": {"a": None, "b": None}, "labels": {"c": None}}}
        live = {"metadata": {"annotations": {"a": "1"}, "labels": {"c": "1"}}}
        self.assertEqual(applicable({}, live, patch), {"metadata": {"annotations": {"a": ""}, "labels": {"c": None}}})


class CommandTests(TestCase):
    """Each command that writes records."""

    timeout = 120

    async def setUp(self) -> None:  # type: ignore[override]
        self.count = 0
        await self.begin()

    async def begin(self) -> None:
        """Have a cluster with all that the commands need, in place of the one before."""
        self.count += 1
        cluster = SandboxCluster(REACTOR, f"rome{self.count}")
        cluster.listen(REACTOR)
        cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(cluster.stop()))
        client = self.client = Client(client_config(cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        self.kubeconfig = Path(self.mktemp()).absolute()
        self.kubeconfig.write_text(cluster.kubeconfig())
        await manifests.ensure(client)
        for name in ("liqo-system", TENANT, "shop", "away"):
            labels = {"liqo.io/enabled": "true"} if name == "away" else {}
            await client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        await self.identify("c1")
        applied: Body = {"metadata": {"name": "c2"}, "spec": {"clusterID": "c2", "sharing": {"percentage": 40}}}
        annotations = {LAST_APPLIED: json.dumps(applied), "discovery.liqo.io/distrusted": "sha256:" + "0" * 64}
        spec = {**applied["spec"], "endpoints": [{"address": "192.0.2.2:5872"}]}
        await client.create(FOREIGNCLUSTERS, {"metadata": {"name": "c2", "annotations": annotations}, "spec": spec})
        status = {"status": {"clusterName": "milan", "seenFingerprint": KEY}}
        await client.patch(FOREIGNCLUSTERS, "c2", status, subresource="status")
        offer = {"clusterID": "c2", "epoch": 1, "offer": {"resources": {"cpu": "2"}}}
        await client.create(ADVERTISEMENTS, {"metadata": {"name": "advertisement-c2"}, "spec": offer})
        labels = {"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "c2"}
        node = {"metadata": {"name": "liqo-milan", "labels": labels}, "spec": {"unschedulable": True}}
        await client.create(NODES, node)
        held = {"metadata": {"name": "c2", "namespace": TENANT}, "spec": {"clusterID": "c2", "nodeName": "liqo-milan"}}
        await client.create(VIRTUALNODES, held)
        observed = {"status": {"deletionsObservation": "0a1b2c"}}
        await client.patch(VIRTUALNODES, "c2", observed, TENANT, subresource="status")
        record = {"metadata": {"name": "offloading", "namespace": "away"}, "spec": {"podOffloadingStrategy": "Remote"}}
        await client.create(NAMESPACEOFFLOADINGS, record)

    async def identify(self, cluster: str) -> None:
        body = {"metadata": {"name": "liqod-identity"}, "data": IDENTITIES[cluster]}
        await self.client.create(SECRETS, body, "liqo-system")

    async def liqodctl(self, *arguments: str) -> tuple[str, str]:
        environ = {"HOME": "/nonexistent", "KUBECONFIG": str(self.kubeconfig)}
        out, err, code = await deferToThread(warm().run, *arguments, env=environ)
        self.assertEqual(code, 0, out + err)
        return out, err

    async def everything(self) -> dict[tuple[str, str, str], Body]:
        found = {}
        for kind in ALL:
            for body in (await self.client.list(kind)).items:
                meta = body["metadata"]
                found[kind.kind, meta.get("namespace", ""), meta["name"]] = without(body)
        return found

    async def apply(self, record: Body) -> None:
        """Apply a record as kubectl does."""
        kind, meta = KINDS[record["kind"]], record["metadata"]
        self.assertEqual(record["apiVersion"], kind.api_version)
        record = json.loads(json.dumps(record))
        note = {LAST_APPLIED: json.dumps(record)}
        try:
            live = await self.client.get(kind, meta["name"], meta.get("namespace", ""))
        except NotFound:
            await self.client.create(kind, apply_merge_patch(record, {"metadata": {"annotations": note}}))
            return
        last = json.loads((live["metadata"].get("annotations") or {}).get(LAST_APPLIED, "{}"))
        patch = _overlay(three_way(last, record, live), {"metadata": {"annotations": note}})
        await self.client.patch(kind, meta["name"], patch, meta.get("namespace", ""))

    async def check(self, *argv: str, deleted: tuple[str, str, str] | None = None) -> None:
        """See that a dry run changes nothing, and that its records do what the command does."""
        before = await self.everything()
        people, _ = await self.liqodctl(*argv, "--dry-run")
        self.assertRegex(people, "would (create|change)|nothing was changed", argv)
        out, err = await self.liqodctl(*argv, "--dry-run", "-o", "yaml")
        as_list = json.loads((await self.liqodctl(*argv, "--dry-run", "-o", "json"))[0])
        records = list(yaml.safe_load_all(out))
        self.assertEqual(as_list, {"apiVersion": "v1", "kind": "List", "items": records})
        self.assertEqual(await self.everything(), before, argv)
        for record in reversed(records):
            await self.apply(record)
        applied = await self.everything()
        self.assertNotEqual(applied, before, argv)
        await self.begin()
        await self.liqodctl(*argv)
        commanded = await self.everything()
        if deleted is not None:
            self.assertIn("kubectl delete", err)
            applied.pop(deleted)
        self.assertEqual(applied, commanded, argv)

    async def test_trust(self) -> None:
        """A pinned key; what was applied earlier stays, and so does what others wrote."""
        await self.check("trust", "milan", "--yes")
        self.assertEqual((await self.everything())["ForeignCluster", "", "c2"]["spec"]["sharing"], {"percentage": 40})

    async def test_nobody_is_asked(self) -> None:
        """What changes nothing needs no confirmation: there is no terminal here."""
        for argv in (("trust", "milan"), ("distrust", "milan"), ("unpeer", "milan")):
            out, _ = await self.liqodctl(*argv, "--dry-run")
            self.assertIn("would change", out, argv)

    async def test_offers(self) -> None:
        """A decision, without the offer, which is the daemon's."""
        await self.check("accept", "milan")
        out, _ = await self.liqodctl("refuse", "milan", "--dry-run", "-o", "yaml")
        self.assertEqual(yaml.safe_load(out)["spec"], {"decision": "Refuse"})

    async def test_reclaim(self) -> None:
        """A moment, which is ten minutes from now unless said otherwise; its end."""
        out, _ = await self.liqodctl("reclaim", "milan", "--wait", "--dry-run", "-o", "yaml")
        by = datetime.fromisoformat(yaml.safe_load(out)["spec"]["reclaim"]["by"])
        self.assertApproximates((by - datetime.now(UTC)).total_seconds(), 600, 60)
        out, _ = await self.liqodctl("reclaim", "milan", "--end", "--dry-run", "-o", "yaml")
        self.assertNotIn("reclaim", yaml.safe_load(out).get("spec", {}))

    async def test_nodes(self) -> None:
        """Nodes made schedulable and not."""
        await self.check("uncordon", "milan")
        out, _ = await self.liqodctl("cordon", "milan", "--dry-run", "-o", "yaml")
        self.assertEqual(yaml.safe_load(out)["spec"], {"unschedulable": True})

    async def test_further_nodes(self) -> None:
        """A virtual node beside the peer's own, made and changed."""
        argv = ("node", "create", "milan", "--name", "milan-gpu", "--limit", "cpu=2", "--taint", "gpu=yes:NoSchedule")
        await self.check(*argv, "--label", "pool=gpu", "--node-selector", "pool=gpu")
        await self.liqodctl(*argv)
        out, _ = await self.liqodctl(*argv, "--dry-run", "-o", "yaml")
        spec = yaml.safe_load(out)["spec"]
        self.assertEqual((spec["limits"], spec["taints"][0]["effect"]), ({"cpu": "2"}, "NoSchedule"))

    async def test_slices(self) -> None:
        """An amount that is asked for, with a node of its own; changed, it names what it no longer asks for."""
        argv = ("slice", "create", "milan", "--name", "gpu", "--amount", "cpu=1", "--amount", "memory=1Gi")
        await self.check(*argv, "--class", "small", "--label", "pool=gpu", "--taint", "gpu=yes:NoSchedule")
        changed = ("slice", "create", "milan", "--name", "gpu", "--amount", "cpu=2")
        out, _ = await self.liqodctl(*changed, "--dry-run", "-o", "yaml")
        record = yaml.safe_load(out)
        self.assertEqual(record["spec"]["resources"], {"cpu": "2", "memory": None})
        self.assertEqual(record["spec"]["class"], "small")
        await self.apply(record)
        applied = await self.everything()
        await self.liqodctl(*changed)
        self.assertEqual(await self.everything(), applied, "nothing is left to do")
        self.assertEqual(applied["ResourceSlice", "liqo-system", "gpu"]["spec"]["resources"], {"cpu": "2"})

    async def test_slices_that_cannot_be_meant(self) -> None:
        """One that is not there, a name that two have, or that a node has: refused in a sentence; nothing changes."""
        for namespace in ("liqo-system", "shop"):
            spec = {"providerClusterID": "c2", "resources": {"cpu": "1"}}
            await self.client.create(
                RESOURCESLICES, {"metadata": {"name": "gpu", "namespace": namespace}, "spec": spec}
            )
        before = await self.everything()
        amount = ("--amount", "cpu=1")
        for argv, code, words in (
            (("remove", "none"), NO_SUCH_OBJECT, "there is no slice none"),
            (("remove", "gpu"), AMBIGUOUS, "liqo-system/gpu, shop/gpu"),
            (("create", "milan", "--name", "liqo-milan", *amount), IN_USE, f"by the VirtualNode {TENANT}/c2"),
        ):
            environ = {"HOME": "/nonexistent", "KUBECONFIG": str(self.kubeconfig)}
            _, err, status = await deferToThread(warm().run, "slice", *argv, env=environ)
            self.assertEqual(status, 1)
            self.assertIn(words, err)
            self.assertIn(code, err)
        self.assertEqual(await self.everything(), before)
        await self.liqodctl("slice", "create", "milan", "--name", "liqo-milan", *amount, "--no-node", "--dry-run")
        await self.liqodctl("slice", "remove", "shop/gpu")
        self.assertEqual(before.keys() - (await self.everything()).keys(), {("ResourceSlice", "shop", "gpu")})

    async def test_deletions(self) -> None:
        """A confirmation of the deletions that are held now."""
        await self.check("confirm-deletions", "milan")

    async def test_offload(self) -> None:
        """The label with the record."""
        await self.check("offload", "namespace", "shop", "--placement", "Remote", "--selector", "region in (eu)")

    async def test_offload_more(self) -> None:
        """A record that is there already."""
        await self.check("offload", "namespace", "away", "--placement", "Local")

    async def test_unoffload(self) -> None:
        """The label is taken away; what has to be deleted is said."""
        await self.check("unoffload", "namespace", "away", deleted=("NamespaceOffloading", "away", "offloading"))

    async def test_what_is_in_force(self) -> None:
        """A record is printed also where nothing would change: it is what belongs into git."""
        asked = ("slice", "create", "milan", "--name", "gpu", "--amount", "cpu=1")
        for argv in (("trust", "milan", "--yes"), ("accept", "milan"), ("offload", "namespace", "shop"), asked):
            await self.liqodctl(*argv)
            out, _ = await self.liqodctl(*argv, "--dry-run", "-o", "yaml")
            self.assertEqual(len(list(yaml.safe_load_all(out))), 1, argv)

    async def test_distrust(self) -> None:
        """The key is unpinned; what a record cannot say, the status, is said."""
        await self.liqodctl("trust", "milan", "--yes")
        out, err = await self.liqodctl("distrust", "milan", "--dry-run", "-o", "yaml")
        record = yaml.safe_load(out)
        self.assertEqual(record["metadata"]["annotations"], {"discovery.liqo.io/distrusted": KEY})
        self.assertEqual((record["spec"]["fingerprint"], record["spec"]["incomingPeering"]), ("", "No"))
        self.assertIn("status of ForeignCluster c2 (seenFingerprint, words)", err)

    async def test_unpeer(self) -> None:
        """The order is an annotation, the deletion is not a record; nobody is asked."""
        out, err = await self.liqodctl("unpeer", "milan", "--dead", "--dry-run", "-o", "yaml")
        self.assertEqual(len(yaml.safe_load(out)["metadata"]["annotations"]), 1)
        self.assertIn("kubectl delete foreignclusters.discovery.liqo.io c2", err.replace("\n  ", " "))

    async def test_token_and_peer(self) -> None:
        """A token is printed beside its Secret, works when that is applied, and the other side's records hold it."""
        people, notes = await self.liqodctl("token", "create", "--address", "192.0.2.1", "--dry-run")
        self.assertNotIn(PREFIX, people + notes, "a token whose Secret is never applied")
        self.assertNotIn("valid", people + notes)
        out, err = await self.liqodctl("token", "create", "--address", "192.0.2.1", "--dry-run", "-o", "yaml")
        token = next(line for line in err.splitlines() if line.startswith(PREFIX))
        self.assertNotIn(token, out)
        self.assertEqual(json.loads((await self.liqodctl("token", "list", "-o", "json"))[0]), [])
        await self.apply(yaml.safe_load(out))
        self.assertEqual(json.loads((await self.liqodctl("token", "list", "-o", "json"))[0])[0]["state"], "open")
        await self.begin()
        await self.client.delete(SECRETS, "liqod-identity", "liqo-system")
        await self.identify("c3")
        out, err = await self.liqodctl("peer", token, "--dry-run", "-o", "yaml")
        kinds = {one["kind"]: one for one in yaml.safe_load_all(out)}
        self.assertEqual(set(kinds), {"Secret", "ForeignCluster"})
        self.assertEqual(kinds["ForeignCluster"]["spec"]["endpoints"][0]["address"], "192.0.2.1:5872")
        self.assertIn("keep the Secret", err)
        self.assertNotIn(token, err)
        for record in kinds.values():
            await self.apply(record)
        _, err = await self.liqodctl("peer", token, "--dry-run", "-o", "yaml")
        self.assertIn("keep the Secret", err, "a Secret that is there already")
