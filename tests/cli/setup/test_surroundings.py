"""What `check --pre` says of the cluster that liqod comes to: truth tables, and a cluster of the sandbox."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.setup.surroundings.judge import (
    LEVELS,
    NOTES,
    PODS_ONLY,
    Surroundings,
    judge,
    judge_authorization,
    judge_cilium,
    judge_pod_security,
)
from liqod.config.load import parse
from liqod.config.schema import Settings
from liqod.facts.observed import CILIUM, ObservedCluster
from liqod.kube.resources import NAMESPACES, NODES
from liqod.model.records.facts import DISTRIBUTION, PLUGIN, Fact
from tests.cli.cluster_case import ClusterCase

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

    def test_distributions(self) -> None:
        """Of each distribution that has something of its own it is said, as a warning with what to do."""
        for name in {*PODS_ONLY, *NOTES}:
            found = judge(Surroundings(facts=facts(name)), Settings())
            mine = [one for one in found if one.verdict == "warning"]
            self.assertEqual(len(mine), (name in PODS_ONLY) + (name in NOTES), name)
            self.assertTrue(all(one.hint and one.text.startswith(f"{name}: ") for one in mine), name)

    def test_signer(self) -> None:
        """On EKS the usual signer is warned of, the one of EKS is not."""
        eks = Surroundings(facts=facts("eks"))
        self.assertEqual([verdict for verdict, _ in self.said(eks)], ["good", "warning"])
        signer = '[kubelet]\nsigner = "beta.eks.amazonaws.com/app-serving"'
        self.assertEqual([verdict for verdict, _ in self.said(eks, signer)], ["good"])

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
        self.assertIn("✓ virtual nodes show a Hostname instead of an InternalIP", output)
        self.assertIn("✓ the API server asks for rights", output)
        self.assertIn("! the namespace liqo-system has the Pod Security level restricted", output)
