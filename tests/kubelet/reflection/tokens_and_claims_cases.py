"""What offloaded pods need to run besides what is reflected one to one, as cases for sandboxes and real clusters alike.

The borrower's side is the real virtual kubelet, the lender's the real hosting. Import the module, not the class.
"""

from __future__ import annotations

import base64
import json
import math
import time
from typing import Any

from liqod.kube.client import Client
from liqod.kube.errors import NotFound, from_status
from liqod.kube.resources import (
    ADVERTISEMENTS,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    SECRETS,
    SERVICEACCOUNTS,
    SHADOWPODS,
    STORAGECLASSES,
    Resource,
)
from liqod.kubelet.common import refusals
from liqod.kubelet.common.meta import HOME_CLAIM_UID
from liqod.model.names import advertisement_name
from tests.kubelet.cases import KubeletSides, condition

TOKEN = {"name": "access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}


def access_volume(**more: Any) -> dict[str, Any]:
    """Return the volume that the API server itself adds to pods, with a shorter life."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
        *more.pop("sources", ()),
    ]
    return {"name": "access", "projected": {"defaultMode": 420, "sources": sources}}


def claims(token: str) -> dict[str, Any]:
    """Return what a token says, unverified."""
    part = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))


class TokenCase(KubeletSides):
    """Tokens of service accounts."""

    async def token_pod(self, name: str, **meta: Any) -> dict[str, Any]:
        """Create a pod that mounts tokens, for its API server and for somebody else."""
        vault = {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 700}}
        spec = {
            "nodeName": self.node,
            "serviceAccountName": "builder",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "volumes": [access_volume(sources=[vault])],
            "containers": [{"name": "main", "image": "localhost/busybox:1", "volumeMounts": [TOKEN]}],
        }
        made: dict[str, Any] = await self.home.create(
            PODS, {"metadata": {"name": name, **meta}, "spec": spec}, self.space
        )
        return made

    async def account(self) -> None:
        """Make the service account that the pods run as."""
        await self.home.create(SERVICEACCOUNTS, {"metadata": {"name": "builder"}}, self.space)

    async def secret(self, pod: str) -> dict[str, Any]:
        """Return the secret with the tokens of a pod, once it is there."""
        return await self.eventually(lambda: self.lender.get(SECRETS, f"{pod}.liqo-token", self.remote))

    async def test_a_secret_that_was_there(self) -> None:
        """A secret that had the name of the tokens', and is gone when it is looked at, is no refusal."""
        self.patch(refusals, "SETTLING_TIME", 0.0)
        create, denied = Client.create, list[str]()

        async def taken(client: Client, resource: Resource, body: Any, *given: Any, **options: Any) -> Any:
            if resource is SECRETS and "liqo-token" in str(body) and not denied:
                denied.append(str(body["metadata"]["name"]))
                raise from_status(409, b'{"reason": "AlreadyExists", "message": "there is one of that name"}')
            return await create(client, resource, body, *given, **options)

        self.patch(Client, "create", taken)
        await self.account()
        await self.token_pod("web")
        await self.runs("web")
        self.assertEqual(len(denied), 1)
        self.assertEqual([one for one in self.events.seen if "tokens are not kept" in one[2]], [])

    async def test_tokens_of_a_pod(self) -> None:
        """A pod's tokens lie at the lender as it asks for them, bound to it, and go when it goes."""
        await self.account()
        made = await self.token_pod("web")
        found = await self.secret("web")
        said = found["metadata"]["annotations"]
        self.assertEqual(said["offloading.liqo.io/service-account-for-pod-uid"], made["metadata"]["uid"])
        texts = {key: base64.b64decode(value).decode() for key, value in found["data"].items()}
        self.assertEqual(texts.pop("namespace"), self.space)
        tokens = {tuple(claims(token)["aud"]): claims(token) for token in texts.values()}
        self.assertEqual(len(tokens), 2)
        for reported in tokens.values():
            self.assertEqual(reported["sub"], f"system:serviceaccount:{self.space}:builder")
            self.assertEqual(reported["kubernetes.io"]["pod"], {"name": "web", "uid": made["metadata"]["uid"]})
        self.assertIn(("vault",), tokens)
        self.assertEqual(tokens["vault",]["exp"] - tokens["vault",]["iat"], 700)
        shadow = await self.eventually(lambda: self.lender.get(SHADOWPODS, "web", self.remote))
        pod = shadow["spec"]["pod"]
        items = pod["volumes"][0]["projected"]["sources"][-1]["secret"]["items"]
        self.assertEqual({item["key"] for item in items}, set(found["data"]))
        self.assertEqual({item["path"] for item in items}, {"token", "vault", "namespace"})
        root = pod["volumes"][0]["projected"]["sources"][0]["configMap"]["name"]
        self.assertTrue(root.startswith("kube-root-ca.crt."))
        self.assertIn("KUBERNETES_SERVICE_HOST", {each["name"] for each in pod["containers"][0]["env"]})
        await self.home.delete(PODS, "web", self.space, grace=0)
        await self.gone(self.lender, SECRETS, "web.liqo-token", self.remote)

    async def test_tokens_only_where_wanted(self) -> None:
        """Pods that mount none, and those that want no support, have no tokens at the lender; at rest none is asked."""
        await self.account()
        spec = {
            "nodeName": self.node,
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "localhost/busybox:1"}],
        }
        await self.home.create(PODS, {"metadata": {"name": "plain"}, "spec": spec}, self.space)
        await self.token_pod("off", annotations={"liqo.io/api-server-support": "disabled"})
        await self.token_pod("on")
        await self.secret("on")
        for name in ("plain", "off"):
            await self.eventually(lambda name=name: self.lender.get(SHADOWPODS, name, self.remote))  # type: ignore[misc]
        asked = dict(self.client.requests)
        await self.pause(1.5)
        self.assertEqual(self.client.requests[("create", "serviceaccounts/token")], 2)
        self.assertEqual(asked[("create", "serviceaccounts/token")], 2)
        held = [each["metadata"]["name"] for each in (await self.lender.list(SECRETS, self.remote)).items]
        self.assertEqual([name for name in held if name.endswith(".liqo-token")], ["on.liqo-token"])

    async def test_tokens_after_a_restart(self) -> None:
        """A daemon that starts again mints nothing that holds, renews what is due, and removes what is left over."""
        await self.account()
        await self.token_pod("stays")
        await self.token_pod("leaves")
        kept, due = await self.secret("stays"), await self.secret("leaves")
        await self.stop()
        await self.home.delete(PODS, "leaves", self.space, grace=0)
        await self.token_pod("old")
        early = {"offloading.liqo.io/service-account-expiration": "2020-01-01T00:00:00Z"}
        labels = {**kept["metadata"]["labels"]}
        note = {**kept["metadata"]["annotations"], **early}
        note["offloading.liqo.io/service-account-for-pod-name"] = "old"
        old = await self.home.get(PODS, "old", self.space)
        note["offloading.liqo.io/service-account-for-pod-uid"] = old["metadata"]["uid"]
        body = {"metadata": {"name": "old.liqo-token", "labels": labels, "annotations": note}, "data": due["data"]}
        await self.lender.create(SECRETS, body, self.remote)
        await self.start()

        async def renewed() -> bool:
            now = await self.lender.get(SECRETS, "old.liqo-token", self.remote)
            return bool(now["metadata"]["annotations"]["offloading.liqo.io/service-account-expiration"] > "2021")

        await self.eventually(renewed)
        await self.gone(self.lender, SECRETS, "leaves.liqo-token", self.remote)
        now = await self.lender.get(SECRETS, "stays.liqo-token", self.remote)
        self.assertEqual(now["metadata"]["resourceVersion"], kept["metadata"]["resourceVersion"])

    async def test_tokens_of_others_are_left_alone(self) -> None:
        """A secret of the lender's own with that name is not touched; the pod at home says so."""
        await self.pod("first")
        await self.runs("first")
        await self.account()
        body = {"metadata": {"name": "web.liqo-token"}, "data": {"theirs": "MQ=="}}
        await self.lender.create(SECRETS, body, self.remote)
        await self.token_pod("web")

        async def reported() -> bool:
            return ("web", "RemoteNameTaken") in {(about, reason) for about, reason, _ in self.events.seen}

        await self.eventually(reported)
        await self.home.delete(PODS, "web", self.space, grace=0)
        await self.gone(self.home, PODS, "web", self.space)
        self.assertEqual((await self.lender.get(SECRETS, "web.liqo-token", self.remote))["data"], {"theirs": "MQ=="})

    async def test_tokens_that_are_taken_away(self) -> None:
        """A lender that deletes a pod's tokens again and again gets them back ever more slowly."""
        await self.account()
        await self.token_pod("web")
        await self.secret("web")
        taken, begun = 0, time.monotonic()
        for _ in range(30):
            await self.pause(0.1)
            try:
                found = await self.lender.get(SECRETS, "web.liqo-token", self.remote)
            except NotFound:
                continue
            await self.lender.delete(SECRETS, "web.liqo-token", self.remote, uid=found["metadata"]["uid"])
            taken += 1
        self.assertGreater(taken, 1)
        both_tokens, elapsed = self.client.requests[("create", "serviceaccounts/token")] / 2, time.monotonic() - begun
        self.assertLessEqual(both_tokens, 2 + math.log2(elapsed + 1), elapsed)

    async def test_no_token_without_an_account(self) -> None:
        """A pod whose account is gone says so at home, and has its tokens when the account is back."""
        await self.account()
        await self.pod("first")
        await self.runs("first")
        await self.stop()
        await self.token_pod("web")
        await self.home.delete(SERVICEACCOUNTS, "builder", self.space)
        await self.start()

        async def reported() -> bool:
            return ("web", "ServiceAccountTokenRefused") in {(about, reason) for about, reason, _ in self.events.seen}

        await self.eventually(reported)
        with self.assertRaises(NotFound):
            await self.lender.get(SECRETS, "web.liqo-token", self.remote)
        await self.account()
        await self.secret("web")


class ClaimCase(KubeletSides):
    """Claims that follow their pods; the binding that the cluster's own controllers do is done by the cases.

    ``bound`` is what they do when there is a volume.
    """

    async def lends_storage(self) -> None:
        """Have the lender offer storage, and wait for the node and for the class at home."""
        name = advertisement_name(self.peer)
        spec = {"offer": {"storageClasses": ["fast", "slow"]}}
        await self.home.patch(ADVERTISEMENTS, name, {"spec": spec})
        await self.node_is("True")
        await self.eventually(lambda: self.home.get(STORAGECLASSES, "liqo"))

    async def claim(self, name: str, node: str, storage_class: str = "liqo", **notes: str) -> dict[str, Any]:
        """Create a claim whose first pod was scheduled on a node."""
        annotations = {"volume.kubernetes.io/selected-node": node, "note": "n", **notes}
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        body = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
        made: dict[str, Any] = await self.home.create(PERSISTENTVOLUMECLAIMS, body, self.space)
        return made

    async def bound(self, claim: dict[str, Any]) -> dict[str, Any]:
        """Return the volume of a claim, when the claim is bound to it."""
        volume = f"pvc-{claim['metadata']['uid']}"
        found = await self.eventually(lambda: self.home.get(PERSISTENTVOLUMES, volume))
        name = claim["metadata"]["name"]
        await self.home.patch(PERSISTENTVOLUMECLAIMS, name, {"spec": {"volumeName": volume}}, self.space)
        await self.home.patch(PERSISTENTVOLUMES, volume, {"status": {"phase": "Bound"}}, subresource="status")
        return found

    async def released(self, claim: dict[str, Any]) -> str:
        """Delete a claim as the cluster does; returns the name of its volume."""
        volume = f"pvc-{claim['metadata']['uid']}"
        await self.home.delete(PERSISTENTVOLUMECLAIMS, claim["metadata"]["name"], self.space)
        await self.home.patch(PERSISTENTVOLUMES, volume, {"status": {"phase": "Released"}}, subresource="status")
        return volume

    async def there(self, name: str) -> dict[str, Any]:
        """Return a claim of the lender once it is there."""
        return await self.eventually(lambda: self.lender.get(PERSISTENTVOLUMECLAIMS, name, self.remote))

    async def test_a_claim_goes_where_its_pod_goes(self) -> None:
        """A volume keeps the claim's pods on the lender, the claim is there with a class of the lender, and grows."""
        await self.lends_storage()
        claim = await self.claim("data", self.node)
        volume = await self.bound(claim)
        spec = volume["spec"]
        (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
        wanted = {"key": "liqo.io/remote-cluster-id", "operator": "In", "values": [str(self.peer)]}
        self.assertEqual(term["matchExpressions"], [wanted])
        self.assertEqual((spec["claimRef"]["uid"], spec["capacity"]), (claim["metadata"]["uid"], {"storage": "1Gi"}))
        self.assertEqual((spec["storageClassName"], spec["persistentVolumeReclaimPolicy"]), ("liqo", "Delete"))
        await self.pod("first")
        found = await self.there("data")
        self.assertEqual((found["spec"]["storageClassName"], found["spec"]["accessModes"]), ("fast", ["ReadWriteOnce"]))
        notes = found["metadata"]["annotations"]
        self.assertEqual(notes["note"], "n")
        self.assertNotIn("volume.kubernetes.io/selected-node", notes)
        more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        await self.home.patch(PERSISTENTVOLUMECLAIMS, "data", more, self.space)

        async def grown() -> bool:
            now = await self.lender.get(PERSISTENTVOLUMECLAIMS, "data", self.remote)
            return bool(now["spec"]["resources"]["requests"]["storage"] == "2Gi")

        await self.eventually(grown)
        name = await self.released(claim)
        await self.gone(self.lender, PERSISTENTVOLUMECLAIMS, "data", self.remote)
        await self.gone(self.home, PERSISTENTVOLUMES, name)

    async def test_kept_data(self) -> None:
        """Data of a class that retains it stays at the lender, and no later claim of that name gets it."""
        await self.lends_storage()
        body = {"metadata": {"name": "keeps"}, "provisioner": "liqo.io/storage", "reclaimPolicy": "Retain"}
        await self.home.create(STORAGECLASSES, {**body, "volumeBindingMode": "WaitForFirstConsumer"})
        first = await self.claim("data", self.node, "keeps")
        await self.bound(first)
        await self.pod("first")
        before = await self.there("data")
        volume = await self.released(first)
        again = await self.claim("data", self.node, "keeps")
        await self.bound(again)

        async def reported() -> bool:
            return ("data", "RemoteNameTaken") in {(about, reason) for about, reason, _ in self.events.seen}

        await self.eventually(reported)
        now = await self.there("data")
        self.assertEqual(now["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"])
        await self.home.get(PERSISTENTVOLUMES, volume)
        # A pod with the later claim does not get the data either: it waits, and is created when that is deleted.
        mounted = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        await self.pod("second", tokens=False, volumes=[mounted])

        async def waits() -> bool:
            found = await self.home.get(PODS, "second", self.space)
            return bool(condition(found, "liqo.io/Offloaded")["reason"] == "ClaimTaken")

        await self.eventually(waits)
        with self.assertRaises(NotFound):
            await self.lender.get(SHADOWPODS, "second", self.remote)
        delete = {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}
        await self.home.patch(PERSISTENTVOLUMES, volume, delete)
        await self.eventually(lambda: self.lender.get(SHADOWPODS, "second", self.remote))
        now = await self.there("data")
        self.assertEqual(now["metadata"]["annotations"][HOME_CLAIM_UID], again["metadata"]["uid"])

    async def test_no_storage_there(self) -> None:
        """Where the lender offers no storage, the claim says so and is scheduled again."""
        await self.node_is("True")
        await self.eventually(lambda: self.home.get(STORAGECLASSES, "liqo"))
        claim = await self.claim("data", self.node)

        async def reported() -> bool:
            return ("data", "StorageNotOffered") in {(about, reason) for about, reason, _ in self.events.seen}

        await self.eventually(reported)

        async def unselected() -> bool:
            now = await self.home.get(PERSISTENTVOLUMECLAIMS, "data", self.space)
            return "volume.kubernetes.io/selected-node" not in now["metadata"]["annotations"]

        await self.eventually(unselected)
        with self.assertRaises(NotFound):
            await self.home.get(PERSISTENTVOLUMES, f"pvc-{claim['metadata']['uid']}")

    async def test_a_claim_at_home(self) -> None:
        """On a real node a real claim stands behind; the volume is the real one's, and not for virtual nodes."""
        await self.lends_storage()
        claim = await self.claim("data", "some-node")
        real = f"pvc-{claim['metadata']['uid']}"
        behind = await self.eventually(lambda: self.home.get(PERSISTENTVOLUMECLAIMS, real, "liqo-storage"))
        self.assertEqual(behind["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], "some-node")
        on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["some-node"]}
        spec = {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
        }
        below = f"real-{self.space}"
        await self.home.create(PERSISTENTVOLUMES, {"metadata": {"name": below}, "spec": spec})
        self.addCleanup(self.home.delete, PERSISTENTVOLUMES, below)
        await self.home.patch(PERSISTENTVOLUMECLAIMS, real, {"spec": {"volumeName": below}}, "liqo-storage")
        bound = {"status": {"phase": "Bound"}}
        await self.home.patch(PERSISTENTVOLUMECLAIMS, real, bound, "liqo-storage", subresource="status")
        volume = await self.bound(claim)
        self.assertEqual((volume["spec"]["hostPath"]["path"], volume["spec"]["capacity"]["storage"]), ("/data", "5Gi"))
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        self.assertEqual(term["matchExpressions"], [on_node, {"key": "liqo.io/type", "operator": "DoesNotExist"}])
        name = await self.released(claim)
        await self.gone(self.home, PERSISTENTVOLUMECLAIMS, real, "liqo-storage")
        await self.gone(self.home, PERSISTENTVOLUMES, name)

    async def test_a_claim_at_home_that_was_replaced(self) -> None:
        """What stood behind an earlier claim of that name, deleted and created again at once, is not left behind."""
        await self.lends_storage()
        claim = await self.claim("data", "some-node")
        real = f"pvc-{claim['metadata']['uid']}"
        behind = await self.eventually(lambda: self.home.get(PERSISTENTVOLUMECLAIMS, real, "liqo-storage"))
        meta = behind["metadata"]
        earlier = f"pvc-earlier-{self.space}"
        body = {
            "metadata": {"name": earlier, "labels": meta["labels"], "annotations": meta["annotations"]},
            "spec": behind["spec"],
        }
        await self.home.create(PERSISTENTVOLUMECLAIMS, body, "liqo-storage")
        await self.gone(self.home, PERSISTENTVOLUMECLAIMS, earlier, "liqo-storage")
        kept = await self.home.get(PERSISTENTVOLUMECLAIMS, real, "liqo-storage")
        self.assertEqual(kept["metadata"]["uid"], meta["uid"])

    async def test_no_room_on_a_node_at_home(self) -> None:
        """The scheduler chooses again when the real provisioner cannot serve a node; the next real claim follows."""
        await self.lends_storage()
        claim = await self.claim("data", "some-node")
        real = f"pvc-{claim['metadata']['uid']}"
        first = await self.eventually(lambda: self.home.get(PERSISTENTVOLUMECLAIMS, real, "liqo-storage"))
        dropped = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": None}}}
        await self.home.patch(PERSISTENTVOLUMECLAIMS, real, dropped, "liqo-storage")

        async def unselected() -> bool:
            now = await self.home.get(PERSISTENTVOLUMECLAIMS, "data", self.space)
            return "volume.kubernetes.io/selected-node" not in now["metadata"]["annotations"]

        await self.eventually(unselected)
        await self.gone(self.home, PERSISTENTVOLUMECLAIMS, real, "liqo-storage")
        for node in ("other-node", "third-node"):
            chosen = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": node}}}
            await self.home.patch(PERSISTENTVOLUMECLAIMS, "data", chosen, self.space)

            async def follows(node: str = node) -> bool:
                now = await self.home.get(PERSISTENTVOLUMECLAIMS, real, "liqo-storage")
                self.assertNotEqual(now["metadata"]["uid"], first["metadata"]["uid"])
                return bool(now["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == node)

            await self.eventually(follows)
        await self.home.delete(PERSISTENTVOLUMECLAIMS, "data", self.space)
        await self.gone(self.home, PERSISTENTVOLUMECLAIMS, real, "liqo-storage")

    async def test_storage_after_a_restart(self) -> None:
        """A daemon that starts again deletes what was released meanwhile, and nothing else."""
        await self.lends_storage()
        stays, leaves = await self.claim("stays", self.node), await self.claim("leaves", self.node)
        for each in (stays, leaves):
            await self.bound(each)
        await self.pod("first")
        before = await self.there("stays")
        await self.there("leaves")
        await self.stop()
        await self.released(leaves)
        await self.start()
        await self.gone(self.lender, PERSISTENTVOLUMECLAIMS, "leaves", self.remote)
        now = await self.there("stays")
        self.assertEqual(now["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"])
