"""``liqodctl check``: what it finds, and whose rights it judges."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from twisted.internet import reactor
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.options import Options
from liqod.cli.setup import check
from liqod.cli.status.reasons import command_codes, reasons
from liqod.config.schema import DaemonSettings, KubernetesSettings, Settings
from liqod.kube.resources import LEASES, MUTATINGWEBHOOKS, STORAGECLASSES
from tests.cli.cluster_case import ClusterCase
from tests.facts.stated import state_networks
from tests.ports import free_ports

REACTOR: Any = reactor


def free_listeners() -> str:
    """Return settings by which nothing listens on a port of this host that another program may have."""
    sections = ("peering", "kubelet", "webhook", "metrics")
    *ports, home_port, home_api = free_ports(len(sections) + 2)
    own = f'[names]\nenabled = true\nhome-port = {home_port}\n[hosting]\nhome-api = "tcp:{home_api}"\n'
    found = zip(sections, ports, strict=True)
    return own + "".join(f'[{section}]\nlisten = "tcp:{port}:interface=127.0.0.1"\n' for section, port in found)


class DaemonKubeconfigTests(SynchronousTestCase):
    """Which kubeconfig `check` uses."""

    def setUp(self) -> None:
        self.unit = Path(self.mktemp()).absolute()
        self.patch(check, "KUBECONFIGS", {"all": str(self.unit), "network": str(self.unit)})

    def used(
        self, options: Options, kubeconfig: str = "", role: Literal["all", "network"] = "all"
    ) -> tuple[str, list[str]]:
        settings = Settings(kubernetes=KubernetesSettings(kubeconfig=kubeconfig), daemon=DaemonSettings(role=role))
        options, findings = check.as_daemon(options, settings, {})
        return options.kubeconfig, [one.verdict for one in findings]

    def test_of_the_unit(self) -> None:
        """That of the daemon's unit where it can be read and nothing else was named; otherwise a warning."""
        self.assertEqual(self.used(Options()), ("", ["warning"]))
        self.unit.touch()
        self.assertEqual(self.used(Options()), (str(self.unit), []))
        self.assertEqual(self.used(Options(), role="network"), ("", ["warning"]))
        self.assertEqual(self.used(Options(kubeconfig="mine")), ("mine", []))
        self.assertEqual(self.used(Options(context="mine")), ("", []))
        self.assertEqual(self.used(Options(), "/etc/liqod/other"), ("", []))

    def test_in_a_pod(self) -> None:
        """In a pod the account is the daemon's."""
        found = check.as_daemon(Options(), Settings(), {"KUBERNETES_SERVICE_HOST": "10.96.0.1"})
        self.assertEqual(found, (Options(), []))


class CheckTests(ClusterCase):
    """Against a cluster of the sandbox."""

    async def test_check(self) -> None:
        """check names what is missing with what to do, and passes the parts that are well."""
        output = await self.liqodctl("check", status=1)
        self.assertIn("✗ DefinitionsMissing: foreignclusters.discovery.liqo.io is missing", output)
        self.assertIn("run `liqodctl install`", output)
        self.assertIn("✗ NoDaemon: no daemon runs for this cluster", output)
        self.assertIn("✓ this user has all rights that the daemon needs", output)
        await self.liqodctl("install")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = {"holderIdentity": "node-1-x", "renewTime": now, "leaseDurationSeconds": 10}
        await self.client.create(LEASES, {"metadata": {"name": "liqod"}, "spec": lease}, "liqo-system")
        port = REACTOR.listenTCP(0, Factory.forProtocol(Protocol), interface="::1")
        self.addCleanup(port.stopListening)
        url = f"https://[::1]:{port.getHost().port}/mutate"
        hooks = [{"clientConfig": {"url": url}}]
        await self.client.create(MUTATINGWEBHOOKS, {"metadata": {"name": "liqod"}, "webhooks": hooks})
        self.assertIn(f"✓ {url} accepts connections", await self.liqodctl("check", status=1))
        findings = json.loads((await self.liqodctl("check", "-o", "json", status=1)).rpartition("]")[0] + "]")
        self.assertIn(("Daemon", "good"), {(finding["group"], finding["verdict"]) for finding in findings})
        self.assertNotIn(("CRDs", "bad"), {(finding["group"], finding["verdict"]) for finding in findings})
        uncoded = [one["text"] for one in findings if one["verdict"] == "bad" and not one["code"]]
        self.assertEqual(uncoded, ["the cluster has no key"])
        self.assertLessEqual({one["code"] for one in findings} - {""}, {*reasons(), *command_codes()})

    async def test_check_as_the_daemon(self) -> None:
        """check judges the rights of the daemon's account, not the user's, and says where it can only do the latter."""
        await self.liqodctl("install")
        output = (await self.liqodctl("check", status=1)).replace("\n    ", " ")
        self.assertIn("! checked with your kubeconfig, not the daemon's", output)
        daemons = self.kubeconfig.with_name("daemon")
        await self.liqodctl("install", "--daemon-kubeconfig", str(daemons))
        output = await self.liqodctl("check", "--kubeconfig", str(daemons), status=1)
        self.assertNotIn("kubeconfig, not the daemon's", output)
        self.assertEqual([line for line in output.splitlines() if "forbidden" in line or "LQ1005" in line], [])

    async def test_facts_as_the_daemon(self) -> None:
        """The daemon's account sees the facts of the cluster; where there are none, that is said."""
        daemons = self.kubeconfig.with_name("daemon")
        await self.liqodctl("install", "--daemon-kubeconfig", str(daemons))
        missed = "is not known: where the API servers are"
        for known in (False, True):
            if known:
                await state_networks(self.client, servers=["192.0.2.9"])
            output = await self.liqodctl("check", "--kubeconfig", str(daemons), "-o", "json", status=1)
            findings = json.loads(output.rpartition("]")[0] + "]")
            self.assertEqual(any(missed in one["text"] for one in findings), not known)
            self.assertEqual("Facts" in {one["group"] for one in findings}, known)

    async def test_what_one_borrower_can_get(self) -> None:
        """check warns where nothing caps that, and of classes whose volumes stay; settings that say more are well."""
        await self.liqodctl("install")
        for name, policy in (("fast", "Delete"), ("kept", "Retain")):
            body = {"metadata": {"name": name}, "provisioner": "example.com/disk", "reclaimPolicy": policy}
            await self.client.create(STORAGECLASSES, body)
        output = (await self.liqodctl("check", status=1)).replace("\n    ", " ")
        self.assertIn("! nothing caps the cpu and memory of one borrower", output)
        self.assertIn("! volumes of the storage class kept stay", output)
        config = Path(self.mktemp()).absolute()
        for text, warned in (
            ('[sharing.limits]\ncpu = "4"\n[hosting]\nstorage-classes = ["kept"]\n', ["nothing caps the memory of"]),
            ("[sharing]\npercentage = 0\n", []),
        ):
            config.write_text(text)
            output = (await self.liqodctl("check", f"--config={config}", status=1)).replace("\n    ", " ")
            found = [one for one in ("nothing caps the memory of", "nothing caps", "volumes of") if one in output]
            self.assertEqual(found[:1], warned)
            self.assertNotIn("volumes of", found)

    async def test_bounds_without_effect(self) -> None:
        """Both say where nothing is known to enforce what tenants' pods may reach; not where all is granted."""
        await self.liqodctl("install")
        config = Path(self.mktemp()).absolute()
        sentence = 'egress = "{}" under [hosting] may be without effect: the network plugin flannel'
        for plugin, level in (
            ("flannel", "internet"),
            ("flannel", "tenant"),
            ("flannel", "all"),
            ("calico", "internet"),
        ):
            await state_networks(self.client, plugin=plugin)
            config.write_text(f'[hosting]\negress = "{level}"\n')
            shown = (await self.liqodctl("check", f"--config={config}", status=1)).replace("\n    ", " ")
            warned = plugin == "flannel" and level != "all"
            self.assertEqual(sentence.format(level) in shown, warned, (plugin, level))

    async def test_check_pre(self) -> None:
        """check --pre looks at ports that are to be had, and needs no definitions."""
        config = Path(self.mktemp()).absolute()
        config.write_text(free_listeners())
        output = await self.liqodctl("check", "--pre", f"--config={config}")
        listeners = ("peering.listen", "kubelet.listen", "webhook.listen", "metrics.listen")
        for setting in (*listeners, "names.home-port", "hosting.home-api"):
            self.assertIn(f"({setting}) is free", output)

    async def test_the_daemons_files(self) -> None:
        """A user who runs a command, or checks before installing, need not be able to read the files of the daemon."""
        config = Path(self.mktemp()).absolute()
        config.write_text(f'{free_listeners()}[kubernetes]\nkubeconfig = "/nowhere/kubeconfig"\n')
        self.assertIn("Configuration", await self.liqodctl("check", "--pre", f"--config={config}"))
        await self.liqodctl("install", f"--config={config}")
        await self.liqodctl("status", f"--config={config}")
        self.assertIn("kubernetes.kubeconfig", await self.liqodctl("check", f"--config={config}", status=1))
