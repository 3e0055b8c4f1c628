"""The control plane of one test cluster: etcd, API server, controller-manager, scheduler."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Final

from attrs import frozen

from tests.testbed import certs, egress, versions
from tests.testbed.host import Host
from tests.testbed.process import CommandFailed, Process

PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
AUTHORIZED: Final = "Node,RBAC"
"""How the API server authorizes where nothing else is wanted."""
AUDIT_LOG: Final = "audit.jsonl"
"""What the API server notes about requests, one JSON object in a line, in the cluster's directory."""

_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
}
_AUDIT_RULES: Final = (
    # The cluster's own parts ask all day long.
    {"level": "None", "userGroups": ["system:nodes", "system:serviceaccounts:kube-system"]},
    {"level": "None", "users": ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"]},
    {"level": "Metadata"},
)
_AUDITED_PODS: Final = {
    "level": "Request",
    "verbs": ["create"],
    "resources": [{"group": "", "resources": ["pods", "pods/binding"]}],
}


@frozen
class Addresses:
    """The addresses of one cluster: its host on the test network, and the ranges inside of it.

    With two IP versions the ranges are two each, with a comma between them, and ``second`` is the host's other address.
    ``first_service`` is of the first version, like ``host``.
    """

    host: str
    service_cidr: str
    first_service: str
    pod_cidr: str
    second: str = ""

    @property
    def dns(self) -> str:
        """The service address of the cluster's DNS server, the tenth by custom."""
        return str(ip_address(self.first_service) + 9)

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{f'[{self.host}]' if ':' in self.host else self.host}:6443"

    @property
    def hosts(self) -> list[str]:
        """The host's addresses, by IP version one at most."""
        return [self.host, *([self.second] if self.second else [])]


def issue(host: Host, name: str, node: str, addresses: Addresses, address: str) -> certs.Authority:
    """Write every certificate and kubeconfig of the cluster into its directory; returns who issued them.

    The test process calls the API server at ``address``.
    """
    authority = certs.Authority(host.directory, f"{name}-authority")
    certs.service_account_keys(host.directory)
    in_cluster = "kubernetes.default.svc"
    services = ["kubernetes", "kubernetes.default", in_cluster, f"{in_cluster}.cluster.local"]
    serving = [*services, "localhost", "127.0.0.1", *{address, *addresses.hosts}, addresses.first_service]
    authority.issue("apiserver", "kube-apiserver", hosts=serving)
    authority.issue("kubelet-client", "kube-apiserver-kubelet-client", group="system:masters")
    authority.issue("front-proxy", "front-proxy")
    authority.kubeconfig("admin", addresses.server, "admin", group="system:masters")
    for who in ("kube-controller-manager", "kube-scheduler"):
        authority.kubeconfig(who, addresses.server, f"system:{who}")
    issue_node(authority, node, addresses.hosts, addresses.server)
    return authority


def issue_node(authority: certs.Authority, node: str, addresses: Sequence[str], server: str) -> None:
    """Write what a node needs to join."""
    authority.issue("kubelet", f"system:node:{node}", group="system:nodes", hosts=[node, *addresses])
    authority.kubeconfig("node", server, f"system:node:{node}", group="system:nodes")
    authority.kubeconfig("kube-proxy", server, "system:kube-proxy")


def start_api(
    host: Host,
    addresses: Addresses,
    *,
    audit: bool = False,
    audit_pods: bool = False,
    aggregated: bool = False,
    tunnelled: bool = False,
    authorization: str = AUTHORIZED,
    version: str = versions.KUBERNETES,
) -> list[Process]:
    """Start etcd and the API server; with ``audit`` it notes every request of others than the cluster's own parts.

    With ``audit_pods`` it also notes, with their content, the pods that anybody makes, and to which nodes they go. With
    ``aggregated`` it says to API servers behind it for whom it asks, as those with rights of their own want it. With
    ``tunnelled`` it reaches kubelets and Services by the proxy of ``egress``, which the caller starts.
    """
    d = host.directory
    client = "http://127.0.0.1:2379"
    etcd = [
        f"--data-dir={d}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
        "--log-level=error",
    ]
    api = [
        f"--etcd-servers={client}",
        "--secure-port=6443",
        *(["--bind-address=::"] if any(":" in one for one in addresses.hosts) else []),
        f"--advertise-address={addresses.host}",
        f"--service-cluster-ip-range={addresses.service_cidr}",
        f"--client-ca-file={d}/ca.crt",
        f"--tls-cert-file={d}/apiserver.crt",
        f"--tls-private-key-file={d}/apiserver.key",
        f"--cert-dir={d}/apiserver",
        f"--authorization-mode={authorization}",
        f"--service-account-key-file={d}/sa.pub",
        f"--service-account-signing-key-file={d}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--allow-privileged=true",
        f"--kubelet-certificate-authority={d}/ca.crt",
        f"--kubelet-client-certificate={d}/kubelet-client.crt",
        f"--kubelet-client-key={d}/kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP,Hostname",
    ]
    if aggregated:
        # One authority for all: who may speak for others differs by its name.
        api += [
            f"--requestheader-client-ca-file={d}/ca.crt",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={d}/front-proxy.crt",
            f"--proxy-client-key-file={d}/front-proxy.key",
        ]
    if tunnelled:
        api.append(f"--egress-selector-config-file={egress.write_configuration(d)}")
    if audit:
        rules = [*([_AUDITED_PODS] if audit_pods else []), *_AUDIT_RULES]
        (d / "audit.json").write_text(json.dumps({**_AUDIT_POLICY, "rules": rules}))
        api += [f"--audit-policy-file={d}/audit.json", f"--audit-log-path={d}/{AUDIT_LOG}"]
    return [
        host.spawn("etcd", [str(versions.program("etcd")), *etcd]),
        host.spawn("kube-apiserver", [str(versions.program("kube-apiserver", version)), *api]),
    ]


def start_controllers(
    host: Host,
    addresses: Addresses,
    *,
    qps: int,
    node_cidrs: bool,
    version: str = versions.KUBERNETES,
) -> list[Process]:
    """Start the controller-manager and the scheduler; with ``qps`` 0 they have their usual request rates."""
    d = host.directory
    rate = [f"--kube-api-qps={qps}", f"--kube-api-burst={2 * qps}"] if qps else []
    controllers = [
        f"--kubeconfig={d}/kube-controller-manager.conf",
        f"--service-account-private-key-file={d}/sa.key",
        f"--root-ca-file={d}/ca.crt",
        f"--cluster-signing-cert-file={d}/ca.crt",
        f"--cluster-signing-key-file={d}/ca.key",
        f"--cert-dir={d}/kube-controller-manager",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        *([f"--cluster-cidr={addresses.pod_cidr}", "--allocate-node-cidrs=true"] if node_cidrs else []),
        *rate,
    ]
    scheduler = [f"--kubeconfig={d}/kube-scheduler.conf", f"--cert-dir={d}/kube-scheduler", "--leader-elect=false"]
    manager, scheduling = (str(versions.program(name, version)) for name in PROGRAMS[2:])
    return [
        host.spawn("kube-controller-manager", [manager, *controllers]),
        host.spawn("kube-scheduler", [scheduling, *scheduler, *rate]),
    ]


def wait(what: str, done: Callable[[], bool], daemons: list[Process], timeout: float) -> None:
    """Wait until a condition holds; the error says which daemon ended, and what it said last.

    The condition may fail with CommandFailed as long as it likes.
    """
    deadline = time.monotonic() + timeout
    last = ""
    while True:
        try:
            if done():
                return
        except CommandFailed as failure:
            last = str(failure)
        for daemon in daemons:
            if not daemon.running:
                raise CommandFailed([daemon.name], 1, f"it ended while waiting for {what}:\n{daemon.tail()}")
        if time.monotonic() > deadline:
            logs = "\n".join(f"--- {daemon.name}\n{daemon.tail(8)}" for daemon in daemons)
            raise CommandFailed([what], None, f"not after {timeout:.0f} s; {last}\n{logs}")
        time.sleep(0.25)
