"""What is known of distributions, network plugins and clouds, and when it applies: one table. Pure.

`check --pre` says what applies; docs/guides/others.md has the whole table. It was read in the source or the
documentation of these platforms. A note without a hint is for information.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from liqod.cli.setup.surroundings.seen import FELIX, Surroundings
from liqod.config.schema import Settings
from liqod.facts.observed import PLUGINS, part_of
from liqod.facts.software import environment_of
from liqod.model.names import INTERNAL_ADDRESS

OTHER_SIGNER: Final = "beta.eks.amazonaws.com/app-serving"
AS_PODS: Final = "`liqodctl up --in-cluster`, or the Helm chart (docs/install-in-cluster.md)"
BEFORE_AWS: Final = range(101, 501)
"""Priorities of policy rules that no rule of AWS' plugin is before, with room for others' own."""
CALICO_DEVICES: Final = "^liqodx?$"
_LABEL: Final = "kubectl label --overwrite namespace liqo-system pod-security.kubernetes.io/enforce=privileged"

Condition = Callable[[Surroundings, Settings], bool]


def always(found: Surroundings, settings: Settings) -> bool:
    """Tell that a note applies wherever the platform is."""
    return True


def may_have_tunnels(found: Surroundings, settings: Settings) -> bool:
    """Tell whether liqod is to lead packets between clusters."""
    return settings.network.mode != "none"


def is_confined(found: Surroundings, settings: Settings) -> bool:
    """Tell whether liqod's namespace has no level of its own, which would be judged by itself."""
    return not found.level


def follows_cis(found: Surroundings, settings: Settings) -> bool:
    """Tell whether RKE2 was started with a profile of CIS, and liqod's namespace has no level of its own."""
    return found.argument("profile").startswith("cis") and is_confined(found, settings)


def has_tunnels_of_agents(found: Surroundings, settings: Settings) -> bool:
    """Tell whether the servers of k3s or RKE2 reach kubelets by tunnels, and virtual nodes fit that by themselves."""
    return found.argument("egress-selector-mode") != "disabled" and not shows_internal(found, settings)


def shows_internal(found: Surroundings, settings: Settings) -> bool:
    """Tell whether an InternalIP is set where servers reach kubelets by tunnels."""
    is_direct = found.argument("egress-selector-mode") == "disabled"
    return settings.kubelet.node_address_type == INTERNAL_ADDRESS and not is_direct


def signs_for_nodes_only(found: Surroundings, settings: Settings) -> bool:
    """Tell whether the signer is another one than that of EKS."""
    return settings.kubelet.signer != OTHER_SIGNER


def comes_late(found: Surroundings, settings: Settings) -> bool:
    """Tell whether rules of AWS' plugin are before liqod's."""
    return may_have_tunnels(found, settings) and settings.network.rule_priority not in BEFORE_AWS


def has_bpf(found: Surroundings, settings: Settings) -> bool:
    """Tell whether Calico's eBPF dataplane is on, and knows no devices but its own."""
    felix = part_of(found.seen.at(FELIX), "spec") or {}
    agents = [found.seen.at(place) for place, name in PLUGINS.items() if name == "calico"]
    is_on = felix.get("bpfEnabled") is True or any(environment_of(one, "FELIX_BPFENABLED") == "true" for one in agents)
    return is_on and may_have_tunnels(found, settings) and "liqod" not in str(felix.get("bpfL3IfacePattern") or "")


@attrs.frozen
class Note:
    """Something about a platform: what it does, and what to do about it.

    ``about`` are names as the facts have them, of clouds with ``cloud`` before. ``when`` says in words when it applies.
    """

    about: tuple[str, ...]
    text: str
    hint: str = ""
    applies: Condition = always
    when: str = "always"


NOTES: Final = (
    Note(
        ("k3s", "rke2"),
        "its servers reach kubelets by tunnels of agents, and answer 502 for an InternalIP that no agent has; virtual "
        "nodes show none",
        applies=has_tunnels_of_agents,
        when="egress-selector-mode is not disabled",
    ),
    Note(
        ("k3s", "rke2"),
        "its servers reach kubelets by tunnels of agents, and answer 502 for an InternalIP that no agent has, such as "
        "that of a virtual node",
        'set node-address-type = "auto" under [kubelet], then start its servers again, which forget no address before; '
        "or start them with egress-selector-mode: disabled",
        shows_internal,
        "node-address-type is InternalIP, and egress-selector-mode not disabled",
    ),
    Note(
        ("rke2",),
        "its profile of CIS admits restricted pods only, in nearly all namespaces",
        f"as pods: {_LABEL}; a service of a host is not affected",
        follows_cis,
        "profile is cis, and the namespace has no label",
    ),
    Note(
        ("microk8s",),
        "it keeps events for five minutes and limits their rate, so `kubectl describe` shows few",
    ),
    Note(
        ("minikube",),
        "its node is a container or a machine that ends with `minikube delete`",
        "install liqod as pods, with the image by `minikube image load` (docs/guides/kind.md)",
    ),
    Note(("kind",), "its nodes are containers", "install liqod as pods: `liqodctl up --in-cluster`"),
    Note(
        ("k0s",),
        "its controllers reach workers by konnectivity, which carries no webhook by URL",
        "run liqod on a worker that controllers reach, or as pods, which offer the webhook at a Service",
    ),
    Note(("talos",), "its hosts have no shell and no systemd, so liqod runs as pods there", AS_PODS),
    Note(
        ("talos",),
        "its namespaces are at the Pod Security level baseline unless a label says otherwise",
        f"{_LABEL}, or the chart with hostNetwork=false and without tunnels",
        is_confined,
        "the namespace has no label",
    ),
    Note(("openshift",), "its hosts are not changed by hand, so liqod runs as pods there", AS_PODS),
    Note(
        ("openshift",),
        "it admits pods with the host's network by a SecurityContextConstraints only",
        "oc adm policy add-scc-to-user privileged -n liqo-system -z liqod, and -z liqod-network with tunnels; or the "
        "chart with hostNetwork=false",
    ),
    Note(
        ("eks",),
        "the usual signer signs certificates of its own nodes only, so logs and exec would fail",
        f'set signer = "{OTHER_SIGNER}" under [kubelet]',
        signs_for_nodes_only,
        "signer is another one",
    ),
    Note(
        ("eks",),
        "its control plane reaches hosts as far as the cluster's security group lets it",
        "let it reach 5873 (webhook) and 5875 (logs and exec), and the ports after it with several daemons",
    ),
    Note(("gke",), "the root of its nodes is read-only, so liqod runs as pods there", AS_PODS),
    Note(
        ("gke",),
        "its control plane may reach nodes at 443 and 10250 only, and may refuse webhooks by URL",
        "open 5873 and 5875 to it, and set service under [webhook] (the chart does)",
    ),
    Note(
        ("aks",),
        "its control plane reaches nothing of the cluster but Services",
        "install liqod as pods: the chart offers the webhook at a Service",
    ),
    Note(
        ("aws-vpc-cni",),
        "its policy rules for pods, at 512, 1024 and 1536, come before liqod's",
        "set rule-priority under [network] to a number from 101 to 500, or mode to none",
        comes_late,
        "tunnels are wanted, and rule-priority is not from 101 to 500",
    ),
    Note(
        ("calico",),
        "its eBPF dataplane drops what comes from devices that it does not know",
        f"set bpfL3IfacePattern: {CALICO_DEVICES} in its FelixConfiguration, or mode to none under [network]",
        has_bpf,
        "tunnels are wanted, eBPF is on, and bpfL3IfacePattern does not name the devices",
    ),
    Note(
        ("ovn-kubernetes",),
        "it leads pods' packets past the host's routes, but in local gateway mode perhaps: no tunnel works",
        "set mode to none under [network]",
        may_have_tunnels,
        "tunnels are wanted",
    ),
    Note(
        ("cloud gce", "cloud hcloud", "cloud aws"),
        "its controller deletes nodes that are away and that it does not know; virtual nodes are kept by a providerID "
        "that is not its own",
    ),
    Note(
        ("cloud azure",),
        "its controller deletes nodes that are away and that it does not know; virtual nodes are kept by the label "
        "kubernetes.azure.com/managed=false",
    ),
)


def page() -> str:
    """Return the table as docs/guides/others.md has it, in Markdown."""
    rows = [f"| {', '.join(one.about)} | {one.text} | {one.hint or '-'} | {one.when} |" for one in NOTES]
    return "\n".join(["| | what it does | what to do | said when |", "| --- | --- | --- | --- |", *rows, ""])
