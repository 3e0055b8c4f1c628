"""``liqodctl install`` and the daemon's own account, against a cluster of the sandbox."""

from __future__ import annotations

import base64
import os
import re
import stat
from pathlib import Path
from typing import Any

import yaml
from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from liqod.agent.account import rights
from liqod.agent.account.objects import token_request
from liqod.agent.host import token_renewal
from liqod.cli.console.errors import CliError
from liqod.cli.setup.account import kubeconfig, token_file, write_private
from liqod.cli.setup.host import wanted
from liqod.cli.setup.host.wanted import KUBECONFIGS
from liqod.config.load import parse
from liqod.demo.access import client_config
from liqod.kube import manifests
from liqod.kube.client import Client
from liqod.kube.connection.account_token import AccountToken
from liqod.kube.connection.config import ClientConfig, load
from liqod.kube.errors import Forbidden, NotFound
from liqod.kube.resources import (
    CLUSTERROLEBINDINGS,
    FOREIGNCLUSTERS,
    LEASES,
    NAMESPACES,
    NODES,
    ROLES,
    SECRETS,
    SERVICEACCOUNTS,
)
from tests.cli.fork_server import warm

REACTOR: Any = reactor
UNITS = Path(__file__).resolve().parents[3] / "systemd"
SUBJECT = "system:serviceaccount:liqo-system:liqod"


class FilesTests(SynchronousTestCase):
    def test_private(self) -> None:
        """The file is for its owner alone, whatever was there before, and nothing is left beside it."""
        folder = Path(self.mktemp())
        folder.mkdir()
        path = folder / "kubeconfig"
        path.write_text("before")
        path.chmod(0o644)
        write_private(str(path), "after")
        self.assertEqual(path.read_text(), "after")
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertEqual(list(folder.iterdir()), [path])

    def test_not_writable(self) -> None:
        """A place that cannot be written is a sentence."""
        with self.assertRaises(CliError) as caught:
            write_private("/nonexistent/kubeconfig", "x")
        self.assertIn("/nonexistent/kubeconfig cannot be written: no such file or directory", str(caught.exception))

    def test_kubeconfig(self) -> None:
        """It reaches the same server with the same trust, by the account's token and nothing else."""
        config = ClientConfig(
            "https://10.0.0.1:6443", b"CA", client_cert_pem=b"C", client_key_pem=b"K", tls_server_name="kubernetes"
        )
        body = yaml.safe_load(kubeconfig(config, "secret", token_file("/etc/liqod/kubeconfig")))
        cluster = body["clusters"][0]["cluster"]
        self.assertEqual((cluster["server"], cluster["tls-server-name"]), ("https://10.0.0.1:6443", "kubernetes"))
        self.assertEqual(base64.b64decode(cluster["certificate-authority-data"]), b"CA")
        kept = "../../var/lib/liqod/home.token"
        self.assertEqual(body["users"][0]["user"], {"token": "secret", "tokenFile": kept})

    def test_where_tokens_are_kept(self) -> None:
        """Each unit's kubeconfig names the file that its daemon keeps in its state directory; another one a file beside
        it.
        """
        for role, path in KUBECONFIGS.items():
            unit = (UNITS / wanted.ROLES[role]).read_text()
            (state,) = re.findall(r"^StateDirectory=(\S+)$", unit, re.M)
            kept = Path(path).parent / token_file(path)
            self.assertEqual(os.path.normpath(kept), f"/var/lib/{state}/{token_renewal._FILE}")
        self.assertEqual(token_file("/srv/liqod.yaml"), "liqod.yaml.token")


class AccountTests(TestCase):
    timeout = 120

    async def setUp(self) -> None:  # type: ignore[override]
        self.cluster = SandboxCluster(REACTOR, "rome")
        self.cluster.listen(REACTOR)
        self.cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.cluster.stop()))
        self.client = self.connect(client_config(self.cluster))
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        (self.folder / "admin").write_text(self.cluster.kubeconfig())

    def connect(self, config: ClientConfig) -> Client:
        client = Client(config, REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        return client

    async def install(self, *arguments: str, **environment: str) -> str:
        environ = {"HOME": "/nonexistent", "KUBECONFIG": str(self.folder / "admin"), **environment}
        out, err, code = await deferToThread(warm().run, "install", *arguments, env=environ)
        self.assertEqual(code, 0, out + err)
        return str(out)

    async def test_account(self) -> None:
        """The account that install makes has every right that the daemon needs, and not those of others."""
        await self.install()
        file = self.folder / "daemon"
        self.assertIn(f"{file}: written", await self.install(f"--daemon-kubeconfig={file}"))
        config = load(str(file))
        assert isinstance(config.token, AccountToken) and config.token.claims is not None
        claims = config.token.claims
        self.assertEqual((claims.subject, claims.expires), (SUBJECT, claims.issued + 7 * 86400))
        self.assertEqual(config.token.path, self.folder / "daemon.token")
        daemon = self.connect(config)
        self.assertEqual(await rights.missing(daemon, parse("", {})), [])
        for attempt in (
            daemon.get(SECRETS, "other", "default"),
            daemon.create(CLUSTERROLEBINDINGS, {"metadata": {"name": "mine"}}),
            daemon.replace(NODES, {"metadata": {"name": "one"}}, "one"),
        ):
            with self.assertRaises(Forbidden):
                await attempt

        own = token_request("liqod", 3600)
        await daemon.create(SERVICEACCOUNTS, own, "liqo-system", name="liqod", subresource="token")

        # Offloaded pods need tokens of accounts that nobody knows beforehand; where they get none, it gets none.
        file = self.folder / "liqod.toml"
        file.write_text("[kubelet]\nenable-apiserver-support = false\n")
        await self.install(f"--config={file}")
        request = {"spec": {"expirationSeconds": 3600}}
        with self.assertRaises(Forbidden):
            await daemon.create(SERVICEACCOUNTS, request, "kube-system", name="default", subresource="token")
        await daemon.create(SERVICEACCOUNTS, own, "liqo-system", name="liqod", subresource="token")

    async def test_a_token_without_end(self) -> None:
        """That of an earlier version goes when a kubeconfig with one that ends is written, and not before."""
        await self.install()
        annotations = {"kubernetes.io/service-account.name": "liqod"}
        kind = "kubernetes.io/service-account-token"
        secret = {"metadata": {"name": "liqod-token", "annotations": annotations}, "type": kind, "data": {}}
        await self.client.create(SECRETS, secret, "liqo-system")
        self.assertNotIn("liqod-token", await self.install())
        await self.client.get(SECRETS, "liqod-token", "liqo-system")
        file = self.folder / "daemon"
        self.assertIn("Secret liqo-system/liqod-token: removed", await self.install(f"--daemon-kubeconfig={file}"))
        with self.assertRaises(NotFound):
            await self.client.get(SECRETS, "liqod-token", "liqo-system")
        self.assertNotIn("removed", await self.install(f"--daemon-kubeconfig={file}"))

    async def test_leases_are_labelled(self) -> None:
        """Leases of virtual nodes without a label get it, and those of no real node; it is said once."""
        labels = {"liqo.io/type": "virtual-node"}
        for name, of_node in (("liqo-rome", labels), ("worker", {})):
            await self.client.create(NODES, {"metadata": {"name": name, "labels": of_node}})
            await self.client.create(LEASES, {"metadata": {"name": name}, "spec": {}}, "kube-node-lease")
        self.assertIn("Lease liqo-rome: labelled liqo.io/type=virtual-node", await self.install())
        self.assertNotIn("Lease", await self.install())
        leases = (await self.client.list(LEASES, "kube-node-lease")).items
        found = {one["metadata"]["name"]: one["metadata"].get("labels") for one in leases}
        self.assertEqual(found, {"liqo-rome": labels, "worker": None})

    async def test_follows_the_configuration(self) -> None:
        """Rights that a changed configuration no longer needs are taken back; what is as it should be stays."""
        config = self.folder / "liqod.toml"
        config.write_text("[storage]\nenabled = true\n")
        self.assertIn("Role liqo-storage/liqod: installed", await self.install("-v", f"--config={config}"))
        config.write_text("[storage]\nenabled = false\n")
        self.assertIn("Role liqo-storage/liqod: removed", await self.install(f"--config={config}"))
        self.assertEqual((await self.client.list(ROLES, "liqo-storage")).items, [])
        before = self.cluster.store.version
        await self.install(f"--config={config}")
        self.assertEqual(self.cluster.store.version, before)

    async def test_other_processes_write_their_account_only(self) -> None:
        """The host of a network agent or of names knows nothing of what the daemon that leads is configured for."""
        config = self.folder / "liqod.toml"
        config.write_text('[storage]\nnode-paths = ["/data/*"]\n')
        await self.install(f"--config={config}")
        store = self.cluster.store
        before = store.version
        config.write_text('[network]\nmode = "wireguard"\n[webhook]\nenabled = false\n')
        for role in ("network", "names"):
            printed = yaml.safe_load_all(await self.install("--print", f"--config={config}", LIQOD_DAEMON__ROLE=role))
            out = await self.install("-v", f"--config={config}", LIQOD_DAEMON__ROLE=role)
            self.assertIn(f"ClusterRole liqod-{role}: installed", out)
            for line in out.splitlines()[:-1]:
                self.assertRegex(line, rf"liqod-{role}(-account)?: installed")
            self.assertEqual(
                {one["metadata"]["name"] for one in printed if one["kind"] != "CustomResourceDefinition"},
                {"liqo-system", f"liqod-{role}", f"liqod-{role}-account"},
            )
        written = [
            f"{kind} {stored.object['metadata']['name']}"
            for kind in store.resources()
            for stored in store.items(kind)
            if stored.version > before
        ]
        others = re.compile(r".* liqod-(network|names)(-account)?")
        self.assertEqual([one for one in written if not others.fullmatch(one)], [])

    async def test_prepared_namespaces(self) -> None:
        """What somebody labelled before the policy is no tenant's, but for peers' and what was made since."""
        tenant = {"liqo.io/tenant-namespace": "true"}

        async def make(name: str, peer: str, **labels: str) -> None:
            body = {"metadata": {"name": name, "labels": {"liqo.io/remote-cluster-id": peer, "a": "b", **labels}}}
            await self.client.create(NAMESPACES, body)

        await manifests.ensure(self.client)
        for peer, key in (("rome", f"sha256:{64 * chr(48)}"), ("stranger", "")):
            spec = {"clusterID": peer, "fingerprint": key}
            await self.client.create(FOREIGNCLUSTERS, {"metadata": {"name": peer}, "spec": spec})
        await make("liqo-tenant-rome", "rome", **tenant)
        await make("liqo-tenant-stranger", "stranger", **tenant)
        await make("shop-unheard-of", "unheard-of")
        out = await self.install()
        for name in ("liqo-tenant-stranger", "shop-unheard-of"):
            self.assertIn(f"namespace {name}: labels of a tenant removed", out)
            found = await self.client.get(NAMESPACES, name)
            self.assertEqual(found["metadata"]["labels"].get("a"), "b")
            self.assertFalse([label for label in found["metadata"]["labels"] if label.startswith("liqo.io/")])
        kept = await self.client.get(NAMESPACES, "liqo-tenant-rome")
        self.assertEqual(kept["metadata"]["labels"]["liqo.io/remote-cluster-id"], "rome")

        await deferLater(REACTOR, 1.1)  # timestamps of Kubernetes are whole seconds
        await make("liqo-tenant-later", "later", **tenant)
        self.assertNotIn("liqo-tenant-later", await self.install())
