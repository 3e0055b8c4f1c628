"""ClusterFacts: what the daemon found out about its own cluster. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import attrs

from liqod.model.objects.meta import Object, View
from liqod.model.records.network import Network, parse_networks

FACTS_NAME: Final = "cluster"
"""The name of the only object of the kind."""
MAX_VALUES: Final = 64
"""Values of one fact at most; the schema has the same bound."""
MAX_TEXT: Final = 256
"""Characters of a value, a source or a message at most; the schema has the same bound."""

DISTRIBUTION: Final = "Distribution"
"""Who packaged the cluster: ``k3s``, ``rke2``, ``kubeadm``, ``kind``, ``eks`` ..."""
VERSION: Final = "KubernetesVersion"
"""The API server's version."""
NODE_VERSIONS: Final = "NodeVersions"
"""The versions of the kubelets."""
NODE_SYSTEMS: Final = "NodeSystems"
"""The operating systems of the nodes, as the kubelets name them."""
RUNTIMES: Final = "ContainerRuntimes"
"""The container runtimes of the nodes, with their versions."""
NODES_COUNT: Final = "Nodes"
"""The number of nodes that are no virtual ones."""
PLUGIN: Final = "NetworkPlugin"
"""The network plugin (CNI): ``cilium``, ``calico``, ``flannel`` ..."""
PROXY: Final = "ProxyMode"
"""What carries out Services: a mode of kube-proxy (``iptables``, ``ipvs``, ``nftables``), or ``cilium``."""
POD_NETWORKS: Final = "PodNetworks"
"""The networks of pods, as CIDRs."""
SERVICE_NETWORKS: Final = "ServiceNetworks"
"""The networks of Services, as CIDRs."""
DOMAIN: Final = "ClusterDomain"
"""The domain of the cluster's own names, by the configuration of its distribution."""
API_SERVER: Final = "APIServer"
"""The URL at which other clusters reach the API server."""
API_SERVER_ADDRESSES: Final = "APIServerAddresses"
"""The addresses of the API servers themselves."""
API_SERVER_NAMES: Final = "APIServerNames"
"""The names and addresses in the API server's certificate."""
DAEMON_ADDRESSES: Final = "DaemonAddresses"
"""The addresses at which other clusters reach the daemon that leads."""

State = Literal["Known", "Assumed", "Unknown"]
"""Whether a fact is said by its source, follows from it by what is usual, or is not known."""


class Fact(View, frozen=True):
    """One fact; an unknown one has no values, and its ``message`` says what to set."""

    name: str
    state: State = "Unknown"
    values: list[str] = []
    source: str = ""
    message: str = ""


class ClusterFactsStatus(View, frozen=True):
    """All facts, in a fixed order."""

    facts: list[Fact] = []


class ClusterFacts(Object, frozen=True):
    """The record."""

    status: ClusterFactsStatus = ClusterFactsStatus()


def fact_of(facts: Sequence[Fact], name: str) -> Fact:
    """Return the fact of a name; an unknown one where there is none."""
    return next((fact for fact in facts if fact.name == name), Fact(name=name))


def values_of(record: ClusterFacts | None, name: str) -> list[str]:
    """Return the values of a fact in a record; none where it is not known, or there is no record."""
    return fact_of(record.status.facts, name).values if record is not None else []


@attrs.frozen
class OwnNetworks:
    """This cluster's own networks. ``is_recorded``: whether the facts were written."""

    pods: tuple[Network, ...] = ()
    services: tuple[Network, ...] = ()
    is_recorded: bool = True

    @property
    def unknown(self) -> tuple[str, ...]:
        """The settings under [network] that would say what is not known."""
        networks = {"pod-cidrs": self.pods, "service-cidrs": self.services}
        return tuple(name for name, known in networks.items() if not known)

    @property
    def is_awaited(self) -> bool:
        """Whether it is not known yet what is known: the daemon starts, or somebody deleted the record."""
        return bool(self.unknown) and not self.is_recorded


def own_networks(
    record: ClusterFacts | None, pod_cidrs: Sequence[str] = (), service_cidrs: Sequence[str] = ()
) -> OwnNetworks:
    """Return this cluster's own networks: as the settings say, and else the record. Nothing is guessed here."""
    return OwnNetworks(
        tuple(parse_networks(pod_cidrs or values_of(record, POD_NETWORKS))),
        tuple(parse_networks(service_cidrs or values_of(record, SERVICE_NETWORKS))),
        record is not None and bool(record.status.facts),
    )
