"""``liqodctl`` as a program, against a cluster of the sandbox."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.errors import CliError
from liqod.cli.main import cli
from liqod.cli.peering.token import row_of
from liqod.cli.setup.host import commands as host
from liqod.config import load
from liqod.identity.certs import generate
from liqod.identity.fingerprint_words import words
from liqod.identity.pairing import Token, read_token
from liqod.identity.store import to_secret
from liqod.identity.tls import PeerTLS
from liqod.kube import manifests
from liqod.kube.errors import NotFound
from liqod.kube.resources import (
    ADVERTISEMENTS,
    CRDS,
    DEPLOYMENTS,
    FOREIGNCLUSTERS,
    LEASES,
    MUTATINGWEBHOOKS,
    NAMESPACES,
    NETWORKCONFIGS,
    NODES,
    PODS,
    RUNTIMECLASSES,
    SECRETS,
    STORAGECLASSES,
    TUNNELENDPOINTS,
    VIRTUALNODES,
    Resource,
)
from liqod.model.ids import ClusterID
from liqod.model.records.invitations import ATTEMPTS, EXPIRES, MAX_ATTEMPTS, USED_BY, token_name
from liqod.model.records.name_service import SLOTS, object_name
from liqod.model.records.unpeering import FINALIZER
from liqod.model.records.views import ForeignCluster
from tests.cli.cluster_case import ClusterCase

REACTOR: Any = reactor
KEY = generate(ClusterID("c2"), datetime.now(UTC)).fingerprint


def liqo_definition(plural: str, group: str, kind: str) -> dict[str, Any]:
    """Return a CRD as Liqo's chart has it, with no mark of whose it is."""
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{plural}.{group}"}, "spec": spec}


class UsageTests(SynchronousTestCase):
    def invoke(self, *arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, list(arguments))
        return result.exit_code, result.output

    def test_help(self) -> None:
        """Every command explains itself in a sentence, and has the common options."""
        code, output = self.invoke("--help")
        self.assertEqual(code, 0)
        commands = [
            "demo",
            "install",
            "uninstall",
            "check",
            "discover",
            "trust",
            "distrust",
            "unpeer",
            "peer",
            "dns-records",
            "accept",
            "refuse",
            "cordon",
            "uncordon",
            "drain",
            "explain",
            "status",
            "version",
            "completion",
        ]
        for command in commands:
            self.assertIn(f"\n  {command} ", output)
            code, text = self.invoke(command, "--help")
            self.assertEqual(code, 0, text)
            if command not in ("demo", "version", "completion"):
                for option in ("--kubeconfig", "--context", "--config", "--output"):
                    self.assertIn(option, text)

    def test_wrong_usage(self) -> None:
        """Wrong usage ends with status 2."""
        for arguments in (["nonsense"], ["trust"], ["status", "-o", "xml"], ["accept", "x", "--timeout", "0"]):
            self.assertEqual(self.invoke(*arguments)[0], 2, arguments)

    def test_hidden_configuration(self) -> None:
        """Where the default configuration cannot be looked at that is said; it is not as if there were none."""
        # Longer than a name may be; a directory without permission for the user fails likewise, but not for root.
        hidden = f"/{'x' * 300}"
        self.patch(load, "DEFAULT_PATH", hidden)
        self.patch(host, "CONFIGURATION", hidden)
        for arguments in (["install", "--print"], ["install", "--host", "--dry-run"]):
            error = CliRunner().invoke(cli, arguments).exception
            assert isinstance(error, CliError), repr(error)
            self.assertEqual(error.code, "LQ1001")
            self.assertIn("name too long", error.message)

    def test_completion(self) -> None:
        """The completion of each shell is printed."""
        for shell in ("bash", "zsh", "fish"):
            code, output = self.invoke("completion", shell)
            self.assertEqual(code, 0)
            self.assertIn("_LIQODCTL_COMPLETE", output)

    def test_print(self) -> None:
        """install --print shows everything it would apply, as YAML."""
        code, output = self.invoke("install", "--print")
        self.assertEqual(code, 0)
        objects = list(yaml.safe_load_all(output))
        definitions = manifests.definitions()
        self.assertEqual(objects[: len(definitions)], definitions)
        rest = [(body["kind"], body["metadata"]["name"]) for body in objects[len(definitions) :]]
        self.assertEqual(rest[0], ("Namespace", "liqo-system"))
        for kind, name in (
            ("Namespace", "liqo-storage"),
            ("ServiceAccount", "liqod"),
            ("ClusterRole", "liqod"),
            ("ClusterRoleBinding", "liqod"),
            ("RuntimeClass", "liqo"),
        ):
            self.assertIn((kind, name), rest)


class TokenRowTests(SynchronousTestCase):
    """What is said about a token."""

    def test_states(self) -> None:
        """Attempts count, and use it up; a used one is used, and an old one has expired, whatever else holds."""
        now = datetime.now(UTC)
        later, earlier = ((now + timedelta(hours=hours)).isoformat() for hours in (1, -1))
        most = str(MAX_ATTEMPTS)
        for data, state, attempts in (
            ({EXPIRES: later}, "open", 0),
            ({EXPIRES: later, ATTEMPTS: "3"}, "open", 3),
            ({EXPIRES: later, ATTEMPTS: most}, "dead", MAX_ATTEMPTS),
            ({EXPIRES: later, ATTEMPTS: most, USED_BY: "milan"}, "used", MAX_ATTEMPTS),
            ({EXPIRES: earlier, ATTEMPTS: "1"}, "expired", 1),
            ({EXPIRES: earlier, USED_BY: "milan"}, "expired", 0),
            ({}, "expired", 0),
        ):
            encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
            row = row_of({"metadata": {"name": token_name("0a1b")}, "data": encoded})
            self.assertEqual((row["id"], row["state"], row["attempts"]), ("0a1b", state, attempts), data)


class AgainstTests(ClusterCase):
    async def peer(self, peer: str, name: str, **status: Any) -> None:
        body = {"metadata": {"name": peer}, "spec": {"clusterID": peer}}
        await self.client.create(FOREIGNCLUSTERS, body)
        await self.client.patch(
            FOREIGNCLUSTERS, peer, {"status": {"clusterName": name, **status}}, subresource="status"
        )

    async def spec(self, peer: str) -> dict[str, Any]:
        return dict((await self.client.get(FOREIGNCLUSTERS, peer)).get("spec", {}))

    async def test_install_and_uninstall(self) -> None:
        """install brings definitions and namespace, again without harm; uninstall takes everything and lists it."""
        self.assertIn("LQ1006", await self.liqodctl("status", status=1))
        self.assertIn("foreignclusters.discovery.liqo.io: installed", await self.liqodctl("install", "-v"))
        runtime = await self.client.get(RUNTIMECLASSES, "liqo")
        self.assertEqual(runtime["scheduling"]["nodeSelector"], {"liqo.io/type": "virtual-node"})
        self.assertNotIn("overhead", runtime)
        again = await self.liqodctl("install", "-v")
        self.assertNotIn("foreignclusters", again)
        self.assertNotIn("RuntimeClass", again)
        self.assertEqual(await self.client.get(RUNTIMECLASSES, "liqo"), runtime)
        await self.peer("c2", "milan")
        await self.client.create(MUTATINGWEBHOOKS, {"metadata": {"name": "liqod"}, "webhooks": []})
        receipt = await self.liqodctl("uninstall", "--yes")
        for line in (
            "removed MutatingWebhookConfiguration liqod",
            "removed ForeignCluster c2",
            "removed RuntimeClass liqo",
            "removed Namespace liqo-system",
            "removed CustomResourceDefinition foreignclusters.discovery.liqo.io",
        ):
            self.assertIn(line, receipt)
        self.assertEqual([one["metadata"]["name"] for one in (await self.client.list(CRDS)).items], [])
        self.assertIn("nothing of liqod was found", await self.liqodctl("uninstall", "--yes"))

    async def test_install_beside_another_installation(self) -> None:
        """Definitions that Helm manages are left alone, and said to be so, until they are to be taken over."""
        await manifests.ensure(self.client)
        name = manifests.definitions()[0]["metadata"]["name"]
        release = {"metadata": {"annotations": {"meta.helm.sh/release-name": "liqo"}}}
        await self.client.patch(CRDS, name, release)
        before = await self.client.get(CRDS, name)
        refused = await self.liqodctl("install", status=1)
        self.assertIn("LQ4001", refused)
        self.assertIn(f"the CRD {name} is managed by the Helm release liqo", refused)
        self.assertEqual(await self.client.get(CRDS, name), before)
        self.assertIn(f"{name}: taken over", await self.liqodctl("install", "--adopt"))
        self.assertNotIn("taken over", await self.liqodctl("install"))

    async def test_install_of_an_earlier_release(self) -> None:
        """What a far later release wrote is left as it is, and nothing else is written either."""
        await manifests.ensure(self.client)
        name = manifests.definitions()[0]["metadata"]["name"]
        later = {"labels": {"app.kubernetes.io/version": "999.0.0"}}
        await self.client.patch(CRDS, name, {"metadata": later, "spec": {"names": {"shortNames": []}}})
        before = (await self.client.list(CRDS)).items
        refused = (await self.liqodctl("install", status=1)).replace("\n  ", " ")
        self.assertIn(f"LQ4001: the definition {name} was written by liqod 999.0.0", refused)
        self.assertEqual((await self.client.list(CRDS)).items, before)
        with self.assertRaises(NotFound):
            await self.client.get(NAMESPACES, "liqo-system")

    async def test_install_where_liqo_is(self) -> None:
        """While Liqo runs it is refused; what it left behind, unmarked, is liqod's with --adopt, and goes with it."""
        await self.client.create(CRDS, liqo_definition("tenants", "authentication.liqo.io", "Tenant"))
        shared = liqo_definition("virtualnodes", "offloading.liqo.io", "VirtualNode")
        await self.client.create(CRDS, shared)
        storage = {"metadata": {"name": "liqo"}, "provisioner": "liqo.io/storage"}
        await self.client.create(STORAGECLASSES, storage)
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo"}})
        labels = {"app.kubernetes.io/part-of": "liqo"}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "manager"}]}}
        runs = {
            "metadata": {"name": "liqo-controller-manager", "labels": labels},
            "spec": {"selector": {"matchLabels": labels}, "template": pod},
        }
        await self.client.create(DEPLOYMENTS, runs, "liqo")
        definitions = (await self.client.list(CRDS)).items
        for arguments in ([], ["--adopt"]):
            refused = await self.liqodctl("install", *arguments, status=1)
            self.assertIn("Deployment liqo/liqo-controller-manager is Liqo's, and runs", refused.replace("\n  ", " "))
        for arguments in (["--dry-run"], ["--yes"], ["--yes", "--force"]):
            self.assertIn("LQ4001", await self.liqodctl("uninstall", *arguments, status=1))
        self.assertEqual((await self.client.list(CRDS)).items, definitions)
        await self.client.delete(DEPLOYMENTS, "liqo-controller-manager", "liqo")
        for command in (["install"], ["check", "--pre"], ["uninstall", "--yes"]):
            refused = (await self.liqodctl(*command, status=1)).replace("\n", " ")
            self.assertRegex(refused, "virtualnodes.offloading.liqo.io +seems to be Liqo's")
        self.assertEqual((await self.client.list(CRDS)).items, definitions)
        name = shared["metadata"]["name"]
        await self.client.patch(CRDS, name, {"status": {"storedVersions": ["v1alpha1"]}}, subresource="status")
        refused = (await self.liqodctl("install", "--adopt", status=1)).replace("\n ", "")
        self.assertIn("its objects are stored as v1alpha1", refused)
        await self.client.patch(CRDS, name, {"status": {"storedVersions": ["v1beta1"]}}, subresource="status")
        adopted = await self.liqodctl("install", "--adopt")
        self.assertIn("StorageClass liqo: taken over", adopted)
        self.assertNotIn("taken over", await self.liqodctl("install"))
        receipt = await self.liqodctl("uninstall", "--yes")
        self.assertIn("removed StorageClass liqo", receipt)
        self.assertEqual(
            [one["metadata"]["name"] for one in (await self.client.list(CRDS)).items],
            ["tenants.authentication.liqo.io"],
        )

    async def test_uninstall_keeps_a_namespace_that_was_there(self) -> None:
        """A namespace that somebody made before `install` stays, without anything of liqod in it; and that is said."""
        before = await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        await self.liqodctl("install")
        for name in ("liqod", "liqod-network", *(object_name(slot) for slot in SLOTS)):
            await self.client.create(LEASES, {"metadata": {"name": name}, "spec": {}}, "liqo-system")
        output = await self.liqodctl("uninstall", "--yes")
        self.assertEqual((await self.client.list(LEASES, "liqo-system")).items, [])
        self.assertIn("the namespace liqo-system was there before liqod and stays", output.replace("\n  ", " "))
        self.assertNotIn("removed Namespace liqo-system", output)
        self.assertIn("removed ServiceAccount liqo-system/liqod", output)
        after = await self.client.get(NAMESPACES, "liqo-system")
        self.assertEqual(after["metadata"]["uid"], before["metadata"]["uid"])

    async def test_uninstall_needs_no_configuration(self) -> None:
        """The namespace for storage that a configuration named goes with the rest where that configuration is gone."""
        config = Path(self.mktemp()).absolute()
        config.write_text('[storage]\nenabled = true\nnamespace = "volumes"\n')
        await self.liqodctl("install", f"--config={config}")
        await self.client.get(NAMESPACES, "volumes")
        self.assertIn("removed Namespace volumes", await self.liqodctl("uninstall", "--yes"))

    async def test_a_runtime_class_of_another_installation(self) -> None:
        """A RuntimeClass of that name that liqod did not make is neither changed nor removed, and said to be there."""
        body = {"metadata": {"name": "liqo", "labels": {"app.kubernetes.io/managed-by": "Helm"}}, "handler": "liqo"}
        made = await self.client.create(RUNTIMECLASSES, body)
        self.assertIn("RuntimeClass liqo: another installation's", await self.liqodctl("install"))
        self.assertNotIn("RuntimeClass", await self.liqodctl("uninstall", "--yes"))
        self.assertEqual(await self.client.get(RUNTIMECLASSES, "liqo"), made)

    async def test_uninstall_in_use(self) -> None:
        """uninstall refuses while a peering exists, and removes its node with --force."""
        await manifests.ensure(self.client)
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-tenant-c2"}})
        record = {
            "metadata": {"name": "c2", "finalizers": ["liqod.io/x"]},
            "spec": {"clusterID": "c2", "nodeName": "n"},
        }
        await self.client.create(VIRTUALNODES, record, "liqo-tenant-c2")
        await self.client.create(NODES, {"metadata": {"name": "n", "labels": {"liqo.io/type": "virtual-node"}}})
        output = await self.liqodctl("uninstall", "--yes", status=1)
        self.assertIn("LQ4001", output)
        self.assertIn("c2", output)
        receipt = await self.liqodctl("uninstall", "--yes", "--force")
        self.assertIn("removed VirtualNode liqo-tenant-c2/c2", receipt)
        self.assertIn("removed Node n", receipt)
        with self.assertRaises(NotFound):
            await self.client.get(NODES, "n")

    async def test_trust(self) -> None:
        """trust pins the key that was seen, after its words; another key than the named one is not pinned."""
        await manifests.ensure(self.client)
        await self.peer("c2", "milan", seenFingerprint=KEY)
        other = "sha256:" + "0" * 64
        self.assertIn("LQ2004", await self.liqodctl("trust", "milan", "--fingerprint", other, status=1))
        self.assertIn("LQ2004", await self.liqodctl("trust", "milan", "--words", "a-b-c-d-e-f", status=1))
        self.assertIn("LQ2006", await self.liqodctl("trust", "milan", status=2))
        self.assertEqual((await self.spec("c2")).get("fingerprint", ""), "")
        six = "-".join(words(KEY).split("-")[:6])
        self.assertIn("6 of the 10 words", await self.liqodctl("trust", "milan", "--words", six, status=2))
        self.assertIn("LQ2004", await self.liqodctl("trust", "milan", "--words", " ", status=1))
        output = await self.liqodctl("trust", "milan", "--words", words(KEY).replace("-", " ").upper())
        self.assertIn(words(KEY), output)
        self.assertEqual((await self.spec("c2"))["fingerprint"], KEY)
        self.assertIn("already trusted", await self.liqodctl("trust", "c2", "--yes"))
        # What it shows meanwhile is not yet what was trusted: it is the pinned key that is revoked.
        await self.client.patch(FOREIGNCLUSTERS, "c2", {"status": {"seenFingerprint": other}}, subresource="status")
        await self.liqodctl("distrust", "milan", "--yes")
        annotations = (await self.client.get(FOREIGNCLUSTERS, "c2"))["metadata"]["annotations"]
        self.assertEqual(annotations["discovery.liqo.io/distrusted"], KEY)
        self.assertEqual(
            await self.spec("c2"),
            {"clusterID": "c2", "fingerprint": "", "outgoingPeering": "No", "incomingPeering": "No"},
        )
        # What was seen of a distrusted peer is forgotten: the key that counts is the one that it shows from now on.
        self.assertIn("LQ2003", await self.liqodctl("trust", "c2", "--yes", status=1))
        await self.client.patch(FOREIGNCLUSTERS, "c2", {"status": {"seenFingerprint": KEY}}, subresource="status")
        await self.liqodctl("trust", "c2", "--yes")
        self.assertEqual((await self.spec("c2"))["outgoingPeering"], "Auto")

    async def test_names(self) -> None:
        """Unknown, ambiguous and unseen peers have codes of their own."""
        await manifests.ensure(self.client)
        await self.peer("c2", "milan")
        await self.peer("c3", "milan")
        self.assertIn("LQ2001", await self.liqodctl("trust", "turin", "--yes", status=1))
        self.assertIn("c2, c3", await self.liqodctl("trust", "milan", "--yes", status=1))
        self.assertIn("LQ2003", await self.liqodctl("trust", "c2", "--yes", status=1))
        self.assertIn("LQ2005", await self.liqodctl("accept", "c2", status=1))

    async def a_node(self, name: str, peer: str, **owned: str) -> None:
        """Make a virtual node with pods on it; ``owned`` says what kind of object makes each again, if any."""
        labels = {"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": peer}
        await self.client.create(NODES, {"metadata": {"name": name, "labels": labels}})
        for pod, kind in owned.items():
            spec = {"nodeName": name, "containers": [{"name": "main", "image": "busybox"}]}
            metadata: dict[str, Any] = {"name": pod, "labels": {"app": pod}}
            if kind:
                resource = Resource("apps", "v1", f"{kind.lower()}s", kind, True)
                template = {"metadata": {"labels": {"app": pod}}, "spec": {"containers": spec["containers"]}}
                body = {"selector": {"matchLabels": {"app": pod}}, "template": template}
                made = await self.client.create(resource, {"metadata": {"name": pod}, "spec": body}, "default")
                owner = {"apiVersion": "apps/v1", "kind": kind, "name": pod, "uid": made["metadata"]["uid"]}
                metadata["ownerReferences"] = [{**owner, "controller": True}]
            await self.client.create(PODS, {"metadata": metadata, "spec": spec}, "default")

    async def pods(self) -> dict[str, bool]:
        """Return the pods that are there, and whether each is being deleted."""
        found = (await self.client.list(PODS, "default")).items
        return {pod["metadata"]["name"]: "deletionTimestamp" in pod["metadata"] for pod in found}

    async def test_cordon(self) -> None:
        """cordon and uncordon mean a virtual node by its name or by its peer, and no other node."""
        await manifests.ensure(self.client)
        await self.peer("c2", "milan")
        await self.peer("c3", "turin")
        await self.a_node("liqo-milan", "c2")
        await self.client.create(NODES, {"metadata": {"name": "real"}})
        for name in ("liqo-milan", "milan", "c2"):
            self.assertIn("liqo-milan: cordoned", await self.liqodctl("cordon", name))
            self.assertTrue((await self.client.get(NODES, "liqo-milan"))["spec"]["unschedulable"])
            self.assertIn("liqo-milan: uncordoned", await self.liqodctl("uncordon", name))
            self.assertNotIn("unschedulable", (await self.client.get(NODES, "liqo-milan"))["spec"])
        self.assertIn("LQ2001", await self.liqodctl("cordon", "real", status=1))
        self.assertIn("LQ2011", await self.liqodctl("cordon", "turin", status=1))

    async def test_drain(self) -> None:
        """drain evicts what is made again elsewhere, says what does not go in time, and ends it when forced."""
        await manifests.ensure(self.client)
        await self.peer("c2", "milan")
        await self.a_node("liqo-milan", "c2", daemon="DaemonSet", web="StatefulSet", db="StatefulSet")
        output = await self.liqodctl("drain", "milan", "--timeout", "1", status=1)
        for line in ("liqo-milan: cordoned", "evicted default/web", "LQ3001", "2 pods left"):
            self.assertIn(line, output)
        self.assertEqual(await self.pods(), {"daemon": False, "web": True, "db": True})
        output = await self.liqodctl("drain", "milan", "--timeout", "1", "--force")
        for line in ("deleted default/web", "deleted default/db", "liqo-milan: drained"):
            self.assertIn(line, output)
        self.assertEqual(await self.pods(), {"daemon": False})
        self.assertTrue((await self.client.get(NODES, "liqo-milan"))["spec"]["unschedulable"])

    async def test_drain_what_nobody_makes_again(self) -> None:
        """drain touches nothing while there is a pod that nobody would make again, unless forced."""
        await manifests.ensure(self.client)
        await self.a_node("liqo-milan", "c2", alone="", web="StatefulSet")
        output = await self.liqodctl("drain", "liqo-milan", status=1)
        self.assertIn("LQ4001", output)
        self.assertIn("default/alone", output)
        self.assertEqual(await self.pods(), {"alone": False, "web": False})
        self.assertNotIn("unschedulable", (await self.client.get(NODES, "liqo-milan")).get("spec", {}))
        await self.liqodctl("drain", "liqo-milan", "--timeout", "1", "--force")
        self.assertEqual(await self.pods(), {})

    async def test_tokens(self) -> None:
        """A token is made, shown without its secret, used by the other side, and revoked."""
        self.assertIn("no key yet", await self.liqodctl("token", "create", status=1))
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        key = generate(ClusterID("rome-id"), datetime.now(UTC))
        metadata = {"name": "liqod-identity", "namespace": "liqo-system"}
        await self.client.create(SECRETS, {"metadata": metadata, "data": to_secret(key)})
        made = json.loads(await self.liqodctl("token", "create", "--ttl=2h", "--address=192.0.2.1", "-o", "json"))[0]
        token = read_token(made["token"])
        self.assertEqual((token.issuer, token.fingerprint), ("rome-id", key.fingerprint))
        self.assertEqual(token.addresses, ["192.0.2.1:5872"])
        (row,) = json.loads(await self.liqodctl("token", "list", "-o", "json"))
        self.assertEqual((row["id"], row["state"], row["attempts"]), (token.id, "open", 0))
        kept = await self.client.get(SECRETS, f"liqod-token-{token.id}", "liqo-system")
        self.assertNotIn(base64.b64encode(token.secret).decode(), str(kept))
        self.assertIn("issued by this cluster", await self.liqodctl("peer", made["token"], status=1))
        self.assertIn("revoked", await self.liqodctl("token", "revoke", token.id))
        self.assertIn("LQ2007", await self.liqodctl("token", "revoke", token.id, status=1))
        self.assertIn("LQ2007", await self.liqodctl("peer", made["token"][:-3], status=2))
        await self.liqodctl("token", "create", "--ttl=soon", status=2)
        made = json.loads(await self.liqodctl("token", "create", "--address=fd00::5872", "-o", "json"))[0]
        self.assertEqual(made["addresses"], ["[fd00::5872]:5872"])
        for wrong in ("gw:99999", "gw:\u0665", "[fd00::1", "http://gw"):
            self.assertIn("is not host:port", await self.liqodctl("token", "create", f"--address={wrong}", status=2))
        config = Path(self.mktemp()).absolute()
        config.write_text('[kubelet]\nnode-address = "127.0.0.1"\n')
        warned = await self.liqodctl("token", "create", f"--config={config}")
        self.assertIn("warning: 127.0.0.1 can be reached on this host only", warned)
        records = await self.liqodctl("dns-records", "example.com", "--address=192.0.2.1", "--host=gw.example.com")
        self.assertIn("_liqod._tcp.example.com. 300 IN PTR ", records)
        self.assertIn(f'"id=rome-id" "fp={key.fingerprint}" "proto=1"', records)
        self.assertIn("gw.example.com. 300 IN A 192.0.2.1", records)
        await self.liqodctl("dns-records", "exam ple", status=2)

    async def test_peer_by_token(self) -> None:
        """The issuer's key is pinned, its address known, and the daemon gets the token."""
        await manifests.ensure(self.client)
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        token = Token("0a1b", ClusterID("milan"), "Milan", KEY, ["192.0.2.1:5872"], bytes(32))
        for _ in range(2):
            await self.liqodctl("peer", token.text, "--no-wait")
        record = await self.client.get(FOREIGNCLUSTERS, "milan", view=ForeignCluster)
        self.assertEqual(record.spec.fingerprint, KEY)
        self.assertEqual([each.address for each in record.spec.endpoints], ["192.0.2.1:5872"])
        await self.client.get(SECRETS, "liqod-invitation-milan", "liqo-system")
        self.assertIn("LQ3001", await self.liqodctl("peer", token.text, "--timeout=0.5", status=1))

    async def test_a_token_for_another_key_changes_nothing(self) -> None:
        """It is refused before anything is stored: the daemon would insist on its key. A new one replaces an old."""
        await manifests.ensure(self.client)
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        other = "sha256:" + "b" * 64
        spec = {"clusterID": "milan", "fingerprint": other}
        record = await self.client.create(FOREIGNCLUSTERS, {"metadata": {"name": "milan"}, "spec": spec})
        token = Token("0a1b", ClusterID("milan"), "Milan", KEY, ["192.0.2.1:5872"], bytes(32))
        self.assertIn("LQ2004", await self.liqodctl("peer", token.text, "--no-wait", status=1))
        self.assertEqual((await self.client.list(SECRETS, "liqo-system")).items, [])
        self.assertEqual((await self.client.get(FOREIGNCLUSTERS, "milan"))["spec"], record["spec"])
        await self.client.delete(FOREIGNCLUSTERS, "milan")
        uids = []
        for _ in range(2):
            await self.liqodctl("peer", token.text, "--no-wait")
            uids.append((await self.client.get(SECRETS, "liqod-invitation-milan", "liqo-system"))["metadata"]["uid"])
        self.assertNotEqual(*uids)

    async def test_peer_at_an_address(self) -> None:
        """Who is there is found by its key alone; nothing is trusted yet."""
        await manifests.ensure(self.client)
        key = generate(ClusterID("milan"), datetime.now(UTC))
        factory = TLSMemoryBIOFactory(PeerTLS(key).server_creator(), False, Factory.forProtocol(Protocol))
        port = REACTOR.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        address = f"127.0.0.1:{port.getHost().port}"
        output = await self.liqodctl("peer", address)
        self.assertIn(words(key.fingerprint), output)
        record = await self.client.get(FOREIGNCLUSTERS, "milan", view=ForeignCluster)
        self.assertEqual(([each.address for each in record.spec.endpoints], record.spec.fingerprint), ([address], ""))
        self.assertIn("LQ2009", await self.liqodctl("peer", "127.0.0.1:1", status=1))
        for target in ("liqod:xxxxx", "a b", "http://example.com/", "[fd00::1", "10.0.0.256", "gw:65536"):
            self.assertIn("neither a pairing token nor an address", await self.liqodctl("peer", target, status=2))

    async def test_unpeer(self) -> None:
        """A stranger's record just goes; a peering needs a daemon to end it, and is not touched without one."""
        await manifests.ensure(self.client)
        await self.peer("c2", "milan")
        output = await self.liqodctl("unpeer", "c2", "--yes")
        self.assertIn("1 object removed", output)
        await self.peer("c2", "milan")
        await self.client.patch(FOREIGNCLUSTERS, "c2", {"metadata": {"finalizers": [FINALIZER]}})
        self.assertIn("LQ3002", await self.liqodctl("unpeer", "c2", "--yes", status=1))
        self.assertFalse((await self.client.get(FOREIGNCLUSTERS, "c2", view=ForeignCluster)).metadata.deleting)

    async def test_unpeer_receipt(self) -> None:
        """The receipt has the network's records as well, which go a moment after the peer's."""
        await manifests.ensure(self.client)
        await self.peer("c2", "milan")
        for resource in (NETWORKCONFIGS, TUNNELENDPOINTS):
            await self.client.create(resource, {"metadata": {"name": "c2"}, "spec": {"clusterID": "c2"}})
        ending = Deferred.fromCoroutine(self.liqodctl("unpeer", "c2", "--yes"))
        while (await self.client.list(FOREIGNCLUSTERS)).items:
            await deferLater(REACTOR, 0.05)
        for resource in (NETWORKCONFIGS, TUNNELENDPOINTS):
            await self.client.delete(resource, "c2")
        output = await ending
        for kind in ("ForeignCluster", "NetworkConfig", "TunnelEndpoint"):
            self.assertRegex(output, f"(?m)^{kind} +c2 +removed")
        self.assertIn("3 objects removed", output)

    async def test_decide(self) -> None:
        """accept and refuse write the user's decision and nothing else."""
        await manifests.ensure(self.client)
        await self.peer("c2", "milan")
        offer = {"resources": {"cpu": "2"}}
        record = {"metadata": {"name": "advertisement-c2"}, "spec": {"clusterID": "c2", "offer": offer}}
        await self.client.create(ADVERTISEMENTS, record)
        self.assertIn("milan: cpu 2: accept", await self.liqodctl("accept", "milan"))
        self.assertEqual((await self.client.get(ADVERTISEMENTS, "advertisement-c2"))["spec"]["decision"], "Accept")
        await self.liqodctl("refuse", "c2")
        spec = (await self.client.get(ADVERTISEMENTS, "advertisement-c2"))["spec"]
        self.assertEqual((spec["decision"], spec["offer"]), ("Refuse", offer))

    async def test_status(self) -> None:
        """status shows peers as a table, JSON and YAML."""
        await manifests.ensure(self.client)
        self.assertIn("no peers yet", await self.liqodctl("status"))
        await self.peer("c2", "milan", phase="TrustPending", reason="KeyUnknown", message="nobody confirmed its key")
        self.assertIn("milan", await self.liqodctl("status"))
        as_json = json.loads(await self.liqodctl("status", "-o", "json"))
        self.assertEqual(as_json["peers"][0]["why"], "KeyUnknown: nobody confirmed its key")
        self.assertEqual(yaml.safe_load(await self.liqodctl("status", "-o", "yaml")), as_json)

    async def test_discover(self) -> None:
        """discover shows each peer with its words and how it was found."""
        await manifests.ensure(self.client)
        endpoints = [{"address": "10.0.0.2:5872", "source": "mDNS"}]
        await self.peer("c2", "milan", seenFingerprint=KEY, words=words(KEY), endpoints=endpoints)
        output = await self.liqodctl("discover", "-o", "wide")
        for text in ("this cluster:", "milan", words(KEY), "mDNS", "10.0.0.2:5872"):
            self.assertIn(text, output)

    async def test_wrong_configuration(self) -> None:
        """A wrong configuration is listed completely, with status 2."""
        config = Path(self.mktemp()).absolute()
        config.write_text('[peering]\nautojoin = 3\nlisten = "x"\n')
        output = await self.liqodctl("status", "--config", str(config), status=2)
        self.assertIn("LQ1001", output)
        self.assertIn("peering.autojoin", output)
        self.assertIn("peering.listen", output)

    async def test_unreachable(self) -> None:
        """A cluster that does not answer is a sentence with a code."""
        self.kubeconfig.write_text(self.cluster.kubeconfig().replace(self.cluster.url, "https://127.0.0.1:1"))
        self.assertIn("LQ1003", await self.liqodctl("status", status=1))
