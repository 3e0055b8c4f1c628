"""Two clusters for the end-to-end tests: at home a virtual node and no other, at the lender a real node."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final

from liqod.model.names import tenant_namespace
from liqod.model.records.name_service import SLOTS, object_name
from tests.e2e import images
from tests.real.daemons import Daemon, HostDaemon
from tests.real.path import eventually, node_ready, peer_of, trust_each_other
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
pods' control groups: what the contract costs is another question than whether the virtual node is a node.
"""
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
_POLICY: Final = "offload-e2e-namespaces"
# The tests' namespaces have this label from the moment of their creation; to label them later would be too late for
# their first pods.
_IS_E2E: Final = "has(object.metadata.labels) && 'e2e-framework' in object.metadata.labels"
_MUTATION: Final = 'Object{metadata: Object.metadata{labels: {"liqo.io/enabled": "true"}}}'


def prepare() -> None:
    """Install the Debian packages and build the programs that are missing; Missing or CommandFailed when it cannot."""
    system.require(images.PACKAGES)
    build.ensure()
    build.ensure(versions.E2E_PROGRAMS)


class E2EClusters:
    """The pair, with daemons that trust each other and a virtual node that is Ready."""

    def __init__(self) -> None:
        self.testbed = Testbed(
            2, nodes=True, dns=True, audit=True, audit_pods=True, nodeless=[1], snapshotter=SNAPSHOTTER
        )
        self.home: Cluster = self.testbed[1]
        self.lender: Cluster = self.testbed[2]
        self.daemons: list[Daemon] = []

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

    def stop_daemons(self) -> None:
        """Stop both daemons; the clusters stay."""
        for daemon in self.daemons:
            daemon.stop()

    def _prepare(self) -> None:
        archive: Path = self.testbed.directory / "e2e-images.tar"
        images.make_images(archive)
        node.import_images(self.lender.host, archive, SNAPSHOTTER)
        self.home.apply(*_offload_all())
        # Home has no node that could say what its pods' network is.
        shared = [_SHARED.format(pod_cidr=cluster.addresses.pod_cidr) for cluster in (self.home, self.lender)]
        rome = HostDaemon(self.home, "rome", extra=shared[0] + _EXPOSED)
        milan = HostDaemon(self.lender, "milan", extra=_LENDER + shared[1] + _NAMES)
        self.daemons = [rome, milan]
        for daemon in self.daemons:
            daemon.start()
        trust_each_other(rome, milan)
        eventually("the virtual node is Ready", partial(node_ready, self.home))
        # A pod that is made before there is a name server keeps the DNS of the lender.
        eventually("names of home are answered", self._names_are_answered)

    def _names_are_answered(self) -> bool:
        """Tell whether both name services of home at the lender lead to a process."""
        space = tenant_namespace(peer_of(self.lender, "rome")["metadata"]["name"])
        pieces = [self.lender.get("endpointslice", object_name(slot), "-n", space) for slot in SLOTS]
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
