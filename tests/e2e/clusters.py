"""Clusters for the end-to-end tests: at home virtual nodes and no other, at each lender a real node."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Final

from liqod.model.names import ENABLED_LABEL, tenant_namespace
from liqod.model.records.name_service import SLOTS, object_name
from tests.e2e import images
from tests.e2e.setups import USUAL, Setup
from tests.real.daemons import Daemon, HostDaemon
from tests.real.path import condition, eventually, peer_of, trust_each_other
from tests.testbed import build, node, system, versions
from tests.testbed.cluster import Cluster
from tests.testbed.testbed import Testbed

SNAPSHOTTER: Final = "overlayfs"
"""To copy the layers for each container, as containerd's native snapshotter does, takes longer than most tests."""

_SHARED: Final = """
[network]
mode = "wireguard"

pod-cidrs = ["{pod_cidr}"]

[sharing]
percentage = 100
"""
_LENDER: Final = """
namespace-names = ["*"]
pod-security = "privileged"
quota = "soft"
"""
"""Settings of ``[hosting]``: the configuration of test daemons ends within that section.

At the level hard, which new tenants have, a container that names no limit gets one, and specs about resizing read their
pods' control groups: what the contract costs is another question than whether the virtual node is a node. The set-up
with the contract asks it.
"""
_HOSTING: Final = "[hosting]\n"
_CONTRACT: Final = f'{_HOSTING}image-pull-policy = "any"\n'
"""All of ``[hosting]`` under the default contract; no registry has the images of the tests."""
_NAMES: Final = """
[names]
enabled = true
"""
"""At the lender: specs about DNS ask for names of home, whose namespaces have other names there."""
_EXPOSED: Final = """
[names]
expose = "all"
"""
"""At home: such specs ask for `kubernetes.default` as well, which is in no namespace that is offloaded."""
LENDERS: Final = ("milan", "turin")
"""The names of the lenders, one after the other."""
_POLICY: Final = "offload-e2e-namespaces"
# The tests' namespaces have this label from the moment of their creation; to label them later would be too late for
# their first pods.
_IS_E2E: Final = "has(object.metadata.labels) && 'e2e-framework' in object.metadata.labels"
_SYSTEM: Final = "kube-system"
"""A spec about preemption makes a critical pod there. No lender gives away its own, so it has another name there."""
_MUTATION: Final = 'Object{metadata: Object.metadata{labels: {"liqo.io/enabled": "true"}}}'


def prepare(setup: Setup = USUAL) -> None:
    """Install the Debian packages and build the programs that are missing; Missing or CommandFailed when it cannot."""
    system.require(images.PACKAGES)
    build.ensure()
    build.ensure(versions.E2E_PROGRAMS)
    for release in sorted({*setup.releases} - {versions.KUBERNETES}):
        build.ensure(versions.SERVERS, release)


class E2EClusters:
    """Home and its lenders, with daemons that trust each other and virtual nodes that are Ready; or a lender alone.

    ``home`` is the cluster that the tests run on, also where that is the lender; ``nodes`` are the names of the nodes
    that the tests are about.
    """

    def __init__(self, setup: Setup = USUAL) -> None:
        self.setup = setup
        self.testbed = Testbed(
            len(setup.releases),
            nodes=True,
            dns=True,
            audit=True,
            audit_pods=True,
            nodeless=[] if setup.alone else [1],
            snapshotter=SNAPSHOTTER,
            versions=setup.releases,
        )
        self.home: Cluster = self.testbed[1]
        self.lenders: list[Cluster] = self.testbed.clusters[0 if setup.alone else 1 :]
        self.daemons: list[Daemon] = []
        self.nodes: set[str] = set()

    @property
    def lender(self) -> Cluster:
        """The first of the lenders."""
        return self.lenders[0]

    def __enter__(self) -> E2EClusters:
        self.testbed.start()
        try:
            self._prepare()
        except BaseException:
            self.testbed.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_daemons()
        self.testbed.stop()

    def facts(self) -> list[dict[str, Any]]:
        """Return what each daemon has found out about its cluster."""
        return [daemon.cluster.get("clusterfacts", "cluster") for daemon in self.daemons]

    def stop_daemons(self) -> None:
        """Stop all daemons; the clusters stay."""
        for daemon in self.daemons:
            daemon.stop()

    def _prepare(self) -> None:
        archive: Path = self.testbed.directory / "e2e-images.tar"
        images.make_images(archive)
        for lender in self.lenders:
            node.import_images(lender.host, archive, SNAPSHOTTER)
        if self.setup.alone:
            self.nodes = {self.lender.node_name}
            return
        self.home.apply(*_offload_all())
        rome = HostDaemon(self.home, "rome", extra=_shared(self.home) + _EXPOSED)
        lending = [_lending(lender, name, self.setup) for lender, name in zip(self.lenders, LENDERS, strict=False)]
        self.daemons = [rome, *lending]
        for daemon in self.daemons:
            daemon.start()
        for daemon in lending:
            trust_each_other(rome, daemon)
        self.nodes = eventually("the virtual nodes are Ready", self._ready_nodes)
        self.home.apply(_offload_system())
        self.home.kubectl("label", "namespace", _SYSTEM, f"{ENABLED_LABEL}=true")
        # A pod that is made before there is a name server keeps the DNS of the lender.
        eventually("names of home are answered", self._names_are_answered)

    def _ready_nodes(self) -> set[str]:
        """Return the names of the virtual nodes once that of each lender is Ready and has resources."""
        nodes = self.home.get("nodes", "-l", "liqo.io/type=virtual-node")["items"]
        ready = {one["metadata"]["name"] for one in nodes if _is_ready(one)}
        return ready if len(ready) == len(self.lenders) else set()

    def _names_are_answered(self) -> bool:
        """Tell whether both name services of home at each lender lead to a process."""
        return all(map(_names_of_rome_are_answered, self.lenders))


def _is_ready(virtual: dict[str, Any]) -> bool:
    return condition(virtual, "Ready") == "True" and bool(virtual["status"].get("allocatable", {}).get("cpu"))


def contracted(configuration: str) -> str:
    """Return the configuration of a test daemon with nothing in ``[hosting]`` but where images come from."""
    before, found, after = configuration.partition(_HOSTING)
    if not found:
        raise ValueError("the configuration has no section [hosting]")
    _, bracket, rest = after.partition("\n[")
    return before + _CONTRACT + bracket + rest


def _lending(cluster: Cluster, name: str, setup: Setup) -> Daemon:
    """Return the daemon of a lender."""
    daemon = HostDaemon(cluster, name, extra=_LENDER + _shared(cluster) + _NAMES)
    if setup.contract:
        daemon.config.write_text(contracted(daemon.config.read_text()))
    return daemon


def _shared(cluster: Cluster) -> str:
    """Return the settings that both sides have; home has no node that could say what its pods' network is."""
    return _SHARED.format(pod_cidr=cluster.addresses.pod_cidr)


def _names_of_rome_are_answered(lender: Cluster) -> bool:
    space = tenant_namespace(peer_of(lender, "rome")["metadata"]["name"])
    pieces = [lender.get("endpointslice", object_name(slot), "-n", space) for slot in SLOTS]
    return all(piece["endpoints"][0]["conditions"].get("ready") is True for piece in pieces)


def _offload_all() -> list[dict[str, object]]:
    """Return the policy that has every namespace of the tests offloaded when it is created."""
    kind = "admissionregistration.k8s.io/v1"
    policy: dict[str, object] = {
        "apiVersion": kind,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": _POLICY},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["namespaces"]}
                ]
            },
            "matchConditions": [
                {
                    "name": "e2e",
                    "expression": "has(object.metadata.labels) && 'e2e-framework' in object.metadata.labels",
                }
            ],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": _MUTATION}}],
        },
    }
    binding: dict[str, object] = {
        "apiVersion": kind,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": _POLICY},
        "spec": {"policyName": _POLICY},
    }
    return [policy, binding]


def _offload_system() -> dict[str, object]:
    """Return the record that has home's kube-system offloaded under another name."""
    return {
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "NamespaceOffloading",
        "metadata": {"name": "offloading", "namespace": _SYSTEM},
        "spec": {"namespaceMappingStrategy": "SelectedName", "remoteNamespaceName": "home-system"},
    }
