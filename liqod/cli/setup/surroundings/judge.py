"""What follows from a cluster's distribution, network plugin and rules for an installation. Pure.

A finding without a hint is for information. What is known of single platforms is in ``notes``; docs/guides has more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from liqod.cli.console.findings import Finding, bad, good, warning
from liqod.cli.setup.surroundings.notes import NOTES
from liqod.cli.setup.surroundings.seen import PRIVILEGED, Surroundings
from liqod.config.schema import Settings
from liqod.facts.node_address import node_address_type
from liqod.facts.observed import CILIUM, ObservedCluster, data_of
from liqod.model.names import HOSTNAME_ADDRESS
from liqod.model.records.facts import DISTRIBUTION, PLUGIN, Fact, fact_of
from liqod.model.records.network import TUNNEL

GROUP: Final = "Cluster"
ENFORCE: Final = "pod-security.kubernetes.io/enforce"
"""The label of a namespace with the level that its pods have to satisfy (Kubernetes, "Pod Security Admission")."""
LEVELS: Final = (PRIVILEGED, "baseline", "restricted")
_CURE: Final = 'set bpf.hostLegacyRouting=true in the Helm values of Cilium, or mode = "none" under [network]'


def judge(found: Surroundings, settings: Settings) -> list[Finding]:
    """Return what is to be said of a cluster before an installation."""
    findings = [_named(found.facts)]
    findings += _known(found, settings)
    if found.is_open is not None:
        findings.append(judge_authorization(is_open=found.is_open))
    if settings.network.mode != "none" and "cilium" in fact_of(found.facts, PLUGIN).values:
        findings.append(judge_cilium(found.seen, required=settings.network.mode == TUNNEL))
    if found.level is not None and (one := judge_pod_security(settings.kubernetes.namespace, found.level)):
        findings.append(one)
    return findings


def _named(facts: Sequence[Fact]) -> Finding:
    """Return what the cluster is, with the source of each part."""
    parts = []
    for name, unknown in ((DISTRIBUTION, "a distribution"), (PLUGIN, "a network plugin")):
        fact = fact_of(facts, name)
        parts.append(f"{fact.values[0]} ({fact.source})" if fact.values else f"{unknown} that is not known here")
    return good(GROUP, f"is {parts[0]}, with {parts[1]}")


def _known(found: Surroundings, settings: Settings) -> list[Finding]:
    """Return what is known of this distribution, this network plugin and this cloud, as far as it applies."""
    findings = []
    for note in NOTES:
        for name in sorted(found.names.intersection(note.about)):
            if note.applies(found, settings):
                text = f"{name}: {note.text}"
                findings.append(warning(GROUP, text, note.hint) if note.hint else good(GROUP, text))
    if settings.kubelet.node_address_type == "auto" and node_address_type(found.facts, settings) == HOSTNAME_ADDRESS:
        findings.append(good(GROUP, "virtual nodes show a Hostname instead of an InternalIP, as this cluster needs it"))
    return findings


def judge_authorization(*, is_open: bool) -> Finding:
    """Return whether rights are enforced at all."""
    if not is_open:
        return good("Rights", "the API server asks for rights: a user without any may do nothing")
    return warning(
        "Rights",
        "the API server lets everybody do everything (AlwaysAllow): neither the daemon's nor a borrower's rights hold",
        "MicroK8s: `microk8s enable rbac`; else --authorization-mode=Node,RBAC of kube-apiserver",
    )


def judge_cilium(seen: ObservedCluster, *, required: bool) -> Finding:
    """Return whether Cilium lets packets of pods meet the host's rules, without which there is no tunnel.

    Source: Cilium, daemon/cmd: BPF host routing is used unless it is switched off, there is a kube-proxy, or packets
    are masqueraded by iptables; a kernel before 5.10 has none either.
    """

    def value(key: str) -> str:
        return data_of(seen.at(CILIUM), key)

    if not seen.has(CILIUM):
        return warning("Network", "how Cilium routes is not known: its ConfigMap was not found", _CURE)
    if value("enable-host-legacy-routing") == "true":
        return good("Network", "Cilium leads packets through the host's rules (enable-host-legacy-routing)")
    if value("kube-proxy-replacement") not in ("true", "strict"):
        return good("Network", "Cilium leads packets through the host's rules, as there is a kube-proxy")
    if value("enable-ipv4-masquerade") != "false" and value("enable-bpf-masquerade") != "true":
        return good("Network", "Cilium leads packets through the host's rules, as iptables masquerades them")
    judged = bad if required else warning
    text = "Cilium leads pods' packets past the host's rules (BPF host routing, Linux 5.10 and newer): no tunnel works"
    return judged("Network", text, _CURE)


def judge_pod_security(namespace: str, level: str) -> Finding | None:
    """Return whether liqod's pods fit the Pod Security level of its namespace; None where it says nothing.

    A service of a host has no pods there.
    """
    if not level:
        return None
    if level == PRIVILEGED:
        return good(GROUP, f"the namespace {namespace} admits pods with the host's network")
    return warning(
        GROUP,
        f"the namespace {namespace} has the Pod Security level {level}: pods with the host's network are refused there",
        f"as pods: kubectl label --overwrite namespace {namespace} {ENFORCE}=privileged, or the chart with "
        "hostNetwork=false and without tunnels; a service of a host is not affected",
    )
