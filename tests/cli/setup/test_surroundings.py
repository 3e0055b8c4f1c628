"""What `check --pre` says of the cluster that liqod comes to: truth tables, and a cluster of the sandbox."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.setup.surroundings.judge import (
    LEVELS,
    judge,
    judge_authorization,
    judge_cilium,
    judge_pod_security,
)
from liqod.cli.setup.surroundings.notes import NOTES
from liqod.cli.setup.surroundings.read import NOBODY
from liqod.cli.setup.surroundings.seen import FELIX, Surroundings
from liqod.config.load import parse
from liqod.config.schema import Settings
from liqod.facts.observed import ARGUMENTS, CILIUM, PLUGINS, ObservedCluster
from liqod.facts.software import LABELS, SUFFIXES
from liqod.kube.resources import CLUSTERROLEBINDINGS, NAMESPACES, NODES
from liqod.model.objects.meta import ObjectMeta
from liqod.model.objects.node import Node, NodeSpec
from liqod.model.records.facts import DISTRIBUTION, PLUGIN, Fact
from tests.cli.cluster_case import ClusterCase
from tests.cli.setup import write_others_page

DISTRIBUTIONS = (*SUFFIXES.values(), *LABELS.values(), "kind", "talos", "openshift", "kubeadm")
CLOUDS = ("aws", "azure", "gce", "hcloud")
CURE = "bpf.hostLegacyRouting=true"


def facts(distribution: str = "", plugin: str = "") -> list[Fact]:
    """Return the two facts, by some source."""
    named = {DISTRIBUTION: distribution, PLUGIN: plugin}
    return [
        Fact(name=name, state="Known" if value else "Unknown", values=[value] if value else [], source="its mark")
        for name, value in named.items()
    ]


def cilium(**settings: str) -> ObservedCluster:
    """Return a cluster with Cilium's configuration."""
    data = {key.replace("_", "-"): value for key, value in settings.items()}
    return ObservedCluster(objects={CILIUM: {"data": data}})


def server(*words: str) -> ObservedCluster:
    """Return a cluster with a server of k3s or RKE2 that was started with some options."""
    shown = json.dumps(["server", *words])
    return ObservedCluster(nodes=[Node(metadata=ObjectMeta(name="one", annotations={ARGUMENTS[0]: shown}))])


def on_cloud(name: str) -> ObservedCluster:
    """Return a cluster with a node whose machine a provider has."""
    return ObservedCluster(nodes=[Node(spec=NodeSpec(provider_id="")), Node(spec=NodeSpec(provider_id=f"{name}://x"))])


def calico(felix: dict[str, Any], environment: dict[str, str]) -> ObservedCluster:
    """Return a cluster with Calico, by the settings of its agents and their environment."""
    env = [{"name": "OTHER", "valueFrom": {}}, *({"name": key, "value": value} for key, value in environment.items())]
    agents = {"spec": {"template": {"spec": {"containers": [{"name": "calico-node", "env": env}]}}}}
    place = next(place for place, name in PLUGINS.items() if name == "calico")
    return ObservedCluster(objects={FELIX: {"spec": felix}, place: agents})


class JudgeTests(SynchronousTestCase):
    """What follows from what."""

    def said(self, found: Surroundings, text: str = "") -> list[tuple[str, str]]:
        """Return verdicts and texts."""
        return [(one.verdict, one.text) for one in judge(found, parse(text, {}))]

    def test_names(self) -> None:
        """Distribution and network plugin are named with their sources; that one is not known is said, and no fault."""
        self.assertEqual(
            self.said(Surroundings(facts=facts("kubeadm", "calico"))),
            [("good", "is kubeadm (its mark), with calico (its mark)")],
        )
        ((verdict, text),) = self.said(Surroundings(facts=facts()))
        self.assertEqual(
            (verdict, text),
            ("good", "is a distribution that is not known here, with a network plugin that is not known here"),
        )

    def hints(self, found: Surroundings, text: str = "") -> str:
        """Return what is to be done, in one text."""
        return "\n".join(one.hint for one in judge(found, parse(text, {})) if one.verdict == "warning")

    def test_each_is_said(self) -> None:
        """Of everything in the table it is known when it is said, and a name that no cluster has is not there."""
        seen = Surroundings(facts=facts("eks", "aws-vpc-cni"), seen=on_cloud("aws"))
        self.assertEqual(seen.names, {"eks", "aws-vpc-cni", "cloud aws"})
        known = {*DISTRIBUTIONS, *PLUGINS.values(), *(f"cloud {name}" for name in CLOUDS)}
        self.assertEqual({name for note in NOTES for name in note.about} - known, set())
        for note in NOTES:
            self.assertTrue(note.text and note.when, note)

    def test_by_name_alone(self) -> None:
        """What is said of a platform whatever else it has, by the number of warnings."""
        for distribution, plugin, count in (
            ("talos", "", 2),
            ("openshift", "ovn-kubernetes", 3),
            ("gke", "", 2),
            ("aks", "azure-cni", 1),
            ("k0s", "kube-router", 1),
            ("kind", "kindnet", 1),
            ("minikube", "kindnet", 1),
            ("eks", "aws-vpc-cni", 3),
            ("microk8s", "calico", 0),
            ("k3s", "flannel", 0),
            ("rke2", "canal", 0),
            ("kubeadm", "calico", 0),
        ):
            found = judge(Surroundings(facts=facts(distribution, plugin)), Settings())
            mine = [one for one in found if one.verdict == "warning"]
            self.assertEqual(len(mine), count, distribution)
            self.assertTrue(all(one.hint and one.text.startswith((distribution, plugin)) for one in mine), distribution)

    def test_signer(self) -> None:
        """On EKS the usual signer is warned of, the one of EKS is not; the security group is a matter in any case."""
        eks = Surroundings(facts=facts("eks"))
        signer = '[kubelet]\nsigner = "beta.eks.amazonaws.com/app-serving"'
        for text, is_said in (("", True), (signer, False)):
            self.assertEqual("signer =" in self.hints(eks, text), is_said, text)
            self.assertIn("5873", self.hints(eks, text))

    def test_tunnels_of_agents(self) -> None:
        """On k3s and RKE2 an InternalIP is warned of, unless their servers reach all kubelets directly."""
        internal = '[kubelet]\nnode-address-type = "InternalIP"'
        for mode, text, verdict in (
            ("", "", "good"),
            ("agent", "", "good"),
            ("cluster", "", "good"),
            ("disabled", "", ""),
            ("", internal, "warning"),
            ("pod", internal, "warning"),
            ("disabled", internal, ""),
        ):
            for distribution in ("k3s", "rke2"):
                words = ["--egress-selector-mode", mode] if mode else []
                found = self.said(Surroundings(facts=facts(distribution), seen=server(*words)), text)
                said = [verdict for verdict, text in found if "502" in text]
                self.assertEqual(said, [verdict] if verdict else [], (mode, text))

    def test_cis_profile(self) -> None:
        """A profile of CIS is warned of where liqod's namespace says nothing itself."""
        for profile, level, is_said in (("cis", None, True), ("cis-1.23", "", True), ("cis", "privileged", False)):
            found = Surroundings(facts=facts("rke2"), seen=server("--profile", profile), level=level)
            self.assertEqual("enforce=privileged" in self.hints(found), is_said, (profile, level))
        self.assertEqual(self.hints(Surroundings(facts=facts("rke2"), seen=server())), "")

    def test_levels_of_talos(self) -> None:
        """On Talos a namespace without a label is warned of, one with a label is judged by it alone."""
        for level, count in ((None, 1), ("", 1), ("baseline", 1), ("privileged", 0)):
            said = self.hints(Surroundings(facts=facts("talos"), level=level))
            self.assertEqual(said.count("enforce=privileged"), count, level)

    def test_rules_of_aws(self) -> None:
        """Rules of AWS' plugin come before liqod's, unless these have a lower number or there is no tunnel."""
        for network, is_said in (
            ("", True),
            ("rule-priority = 100", True),
            ("rule-priority = 101", False),
            ("rule-priority = 500", False),
            ("rule-priority = 501", True),
            ('mode = "none"', False),
        ):
            found = Surroundings(facts=facts("eks", "aws-vpc-cni"))
            self.assertEqual("rule-priority" in self.hints(found, f"[network]\n{network}"), is_said, network)

    def test_ovn(self) -> None:
        """OVN-Kubernetes carries no tunnel; without tunnels there is nothing to say."""
        for mode, count in (("auto", 1), ("none", 0)):
            found = Surroundings(facts=facts("kubeadm", "ovn-kubernetes"))
            self.assertEqual(len(self.hints(found, f'[network]\nmode = "{mode}"').splitlines()), count, mode)

    def test_calico_bpf(self) -> None:
        """Calico's eBPF dataplane is warned of, however it was switched on, until it knows the tunnel's devices."""
        on, environment = {"bpfEnabled": True}, {"FELIX_BPFENABLED": "true"}
        for felix, env, is_said in (
            ({}, {}, False),
            ({"bpfEnabled": False}, {"FELIX_BPFENABLED": "false"}, False),
            (on, {}, True),
            ({}, environment, True),
            ({**on, "bpfL3IfacePattern": "^wg0$"}, {}, True),
            ({**on, "bpfL3IfacePattern": "^liqodx?$"}, {}, False),
            ({"bpfL3IfacePattern": "^(wg0|liqod.*)$"}, environment, False),
        ):
            found = Surroundings(facts=facts("kubeadm", "calico"), seen=calico(felix, env))
            self.assertEqual("bpfL3IfacePattern" in self.hints(found), is_said, (felix, env))
            self.assertEqual(self.hints(found, '[network]\nmode = "none"'), "")

    def test_clouds(self) -> None:
        """Where a cloud has the machines it is said what keeps its controller from virtual nodes."""
        for cloud, mark in (("gce", "providerID"), ("hcloud", "providerID"), ("azure", "managed=false"), ("kind", "")):
            said = self.said(Surroundings(facts=facts("kubeadm"), seen=on_cloud(cloud)))
            self.assertEqual([mark in text for _, text in said[1:]], [True] if mark else [], cloud)
            self.assertEqual({verdict for verdict, _ in said}, {"good"})

    def test_addresses(self) -> None:
        """Where virtual nodes show another type of address by themselves it is said."""
        for distribution, plugin, is_said in (
            ("k3s", "flannel", True),
            ("rke2", "canal", True),
            ("kubeadm", "kindnet", True),
            ("kubeadm", "calico", False),
        ):
            found = self.said(Surroundings(facts=facts(distribution, plugin)))
            self.assertEqual(any("Hostname" in text for _, text in found), is_said, distribution)

    def test_authorization(self) -> None:
        """That everybody may do everything is warned of; where it is not known nothing is said."""
        for is_open, verdict in ((True, "warning"), (False, "good")):
            self.assertEqual(judge_authorization(is_open=is_open).verdict, verdict)
            found = judge(Surroundings(facts=facts(), is_open=is_open), Settings())
            self.assertEqual(found[1].verdict, verdict)
        self.assertEqual(len(judge(Surroundings(facts=facts()), Settings())), 1)

    def test_cilium(self) -> None:
        """Cilium leads packets past the host's rules unless one of three things keeps it from that."""
        for settings, is_past in (
            ({}, False),
            ({"kube_proxy_replacement": "true"}, False),
            ({"kube_proxy_replacement": "false", "enable_bpf_masquerade": "true"}, False),
            ({"kube_proxy_replacement": "true", "enable_bpf_masquerade": "true"}, True),
            ({"kube_proxy_replacement": "strict", "enable_bpf_masquerade": "true"}, True),
            ({"kube_proxy_replacement": "true", "enable_ipv4_masquerade": "false"}, True),
            (
                {
                    "kube_proxy_replacement": "true",
                    "enable_bpf_masquerade": "true",
                    "enable_host_legacy_routing": "true",
                },
                False,
            ),
        ):
            for required in (True, False):
                found = judge_cilium(cilium(**settings), required=required)
                wrong = "bad" if required else "warning"
                self.assertEqual(found.verdict, wrong if is_past else "good", settings)
                self.assertEqual(CURE in found.hint, is_past, settings)
        self.assertEqual(judge_cilium(ObservedCluster(), required=True).verdict, "warning")

    def test_cilium_without_tunnels(self) -> None:
        """Where liqod makes no tunnels it does not matter how packets are led."""
        past = cilium(kube_proxy_replacement="true", enable_bpf_masquerade="true")
        found = Surroundings(facts=facts("kubeadm", "cilium"), seen=past)
        for mode, verdicts in (("none", ["good"]), ("auto", ["good", "warning"]), ("wireguard", ["good", "bad"])):
            said = self.said(found, f'[network]\nmode = "{mode}"')
            self.assertEqual([verdict for verdict, _ in said], verdicts, mode)

    def test_pod_security(self) -> None:
        """A level below privileged is warned of; a namespace that says nothing, or is not there, is no matter."""
        for level in LEVELS:
            found = judge_pod_security("liqo-system", level)
            assert found is not None
            self.assertEqual(found.verdict, "good" if level == "privileged" else "warning")
            self.assertEqual("enforce=privileged" in found.hint, level != "privileged")
        self.assertIsNone(judge_pod_security("liqo-system", ""))
        for seen, count in ((None, 1), ("", 1), ("baseline", 2)):
            self.assertEqual(len(judge(Surroundings(facts=facts(), level=seen), Settings())), count, seen)


class CheckTests(ClusterCase):
    """Against a cluster of the sandbox."""

    async def test_named_before_the_installation(self) -> None:
        """`check --pre` names the cluster by its marks, and reads whether rights count; nothing is written."""
        info = {"kubeletVersion": "v1.35.0+k3s1"}
        node: dict[str, Any] = {"metadata": {"name": "one"}, "spec": {}}
        await self.client.create(NODES, node)
        await self.client.patch(NODES, "one", {"status": {"nodeInfo": info}}, subresource="status")
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system", "labels": labels}})
        out, err, _ = await self.outcome("check", "--pre", env={"HOME": "/nonexistent"})
        output = " ".join((out + err).split())
        self.assertIn("✓ is k3s (kubelet version v1.35.0+k3s1)", output)
        self.assertIn("✓ k3s: its servers reach kubelets by tunnels of agents", output)
        self.assertIn("✓ virtual nodes show a Hostname instead of an InternalIP", output)
        self.assertIn("✓ the API server asks for rights", output)
        self.assertIn("! the namespace liqo-system has the Pod Security level restricted", output)

    async def test_rights_that_do_not_count(self) -> None:
        """After the installation `check` says nothing of rights that count, and warns where they do not."""
        said = "the API server lets everybody do everything"
        out, err, _ = await self.outcome("check", env={"HOME": "/nonexistent"})
        self.assertNotIn(said, " ".join((out + err).split()))
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        everybody = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": NOBODY}
        body = {"metadata": {"name": "open"}, "roleRef": role, "subjects": [everybody]}
        await self.client.create(CLUSTERROLEBINDINGS, body)
        out, err, _ = await self.outcome("check", env={"HOME": "/nonexistent"})
        self.assertIn(f"! {said} (AlwaysAllow)", " ".join((out + err).split()))


class PageTests(SynchronousTestCase):
    """The guide for platforms without one of their own."""

    def test_table(self) -> None:
        """It has the whole table; `python -m tests.cli.setup.write_others_page` writes it again."""
        self.assertEqual(write_others_page.GUIDE.read_text(), write_others_page.text())
        self.assertIn(NOTES[0].text, write_others_page.text())
