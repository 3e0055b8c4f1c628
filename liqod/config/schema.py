"""The settings: one frozen class per section of ``/etc/liqod/liqod.toml``, with defaults and bounds.

Keys are written in kebab-case in the file. Durations are seconds. Endpoint strings are Twisted's
(``tcp:5872``, ``tcp:5872:interface=10.0.0.1``, ``systemd:domain=INET:name=liqod``); a port alone is that of
all addresses of both IP versions.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from liqod.model.objects.tenant_nodes import ControlPlane
from liqod.model.records.offer_rules import SHOWN
from liqod.model.records.views import DEFAULT_CLASS, Switch

Seconds = Annotated[float, Meta(gt=0, le=86400 * 365, description="seconds, more than 0")]
Percentage = Annotated[int, Meta(ge=0, le=100, description="a whole number from 0 to 100")]
Workers = Annotated[int, Meta(ge=0, le=64, description="a whole number from 0 (off) to 64")]
Name = Annotated[
    str,
    Meta(
        pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?\Z",
        description="lower-case letters, digits and '-', at most 63, beginning and ending with a letter or digit",
    ),
]
Fingerprint = Annotated[
    str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z", description="sha256: and 64 lower-case hex digits")
]


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """The base of all sections."""


class DaemonSettings(Section, frozen=True):
    """Which of the daemon's processes this one is: ``all``, ``control``, the ``network`` agent, or ``names``."""

    role: Literal["all", "control", "network", "names"] = "all"


class ClusterSettings(Section, frozen=True):
    """Who this cluster is. An empty id means the UID of ``kube-system``; an empty name means the host's name.

    ``domain`` is the cluster's own in DNS: that of its kubelets (``clusterDomain``) and its DNS.
    """

    id: Name = ""
    name: Name = ""
    domain: str = "cluster.local"


class KubernetesSettings(Section, frozen=True):
    """How the daemon reaches its own API server, and what it announces to borrowers about it.

    ``kubeconfig`` empty: in-cluster where there is one, else ``$KUBECONFIG`` and ``~/.kube/config``.
    ``api-server-url`` empty: the address in the kubeconfig is what borrowers get. ``token_lifetime`` is that of the
    tokens of liqod's own accounts. ``leader_services`` are Services without a selector that lead to whichever daemon
    leads.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: Name = "liqo-system"
    api_server_url: str = ""
    manage_crds: bool = True
    token_lifetime: Annotated[
        int, Meta(ge=600, le=86400 * 30, description="seconds, from 600 to 2592000 (30 days)")
    ] = 86400 * 7
    leader_services: list[Name] = []


class IdentitySettings(Section, frozen=True):
    """The cluster's key: made and kept in a Secret unless files are named. ``ca`` trusts what it signed.

    ``revoked``: fingerprints of keys that are never accepted, of peers or of CAs.
    ``rotation_grace``: seconds that peers that are away have to come and hear of the next key.
    """

    certificate: str = ""
    key: str = ""
    ca: str = ""
    revoked: Annotated[list[Fingerprint], Meta(max_length=1024)] = []
    rotation_grace: Annotated[float, Meta(ge=0, le=86400 * 365, description="seconds, from 0 to 31536000")] = 86400.0


class PeerSettings(Section, frozen=True):
    """A peer named by hand: where it is and, optionally, the fingerprint that pins it."""

    address: str
    fingerprint: Fingerprint | None = None


class DiscoverySettings(Section, frozen=True):
    """How peers are found. ``interfaces`` empty: all that are up and multicast, without those of containers.

    ``dns_servers`` are asked about SearchDomains; empty: those of the system.
    """

    mdns: bool = True
    interfaces: list[str] = []
    dns_servers: list[str] = []
    peers: list[PeerSettings] = []


class PeeringSettings(Section, frozen=True):
    """The session: where it listens, whether peering happens by itself, and its time-outs.

    ``api`` is how API servers are reached, ours by borrowers and those of lenders by us: direct, by address and token;
    relay, over the sessions' port; auto, direct where that works, else relay. ``api_streams`` are the most idle streams
    that a lender without a tunnel to us may ask for, so that our pods there reach our API server; 0: none.
    """

    listen: str = "tcp:5872"
    advertise_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    advertise_addresses: list[str] = []
    autojoin: bool = True
    autojoin_untrusted: bool = False
    outgoing: Switch = "Auto"
    incoming: Switch = "Auto"
    ping_interval: Seconds = 10.0
    handshake_timeout: Seconds = 10.0
    max_sessions: Annotated[int, Meta(ge=1, le=4096)] = 512
    max_untrusted: Annotated[int, Meta(ge=1, le=4096)] = 64
    api: Literal["auto", "direct", "relay"] = "auto"
    api_streams: Annotated[int, Meta(ge=0, le=64, description="a whole number from 0 to 64")] = 16


class SharingSettings(Section, frozen=True):
    """What is offered: a percentage of what is free, and absolute limits by resource that cap it.

    ``slice_classes``: the classes of which borrowers may ask for slices, each with the most of a resource in one slice;
    what is not named there has no bound but the offer.
    """

    percentage: Percentage = 30
    limits: dict[str, str] = {}
    labels: dict[str, str] = {}
    prices: dict[str, str] = {}
    load_balancer_classes: list[str] = []
    ttl: Seconds = 1800.0
    threshold: Percentage = 5
    slice_classes: dict[str, dict[str, str]] = msgspec.field(default_factory=lambda: {DEFAULT_CLASS: {}})


Granted = Annotated[list[Annotated[str, Meta(min_length=1, max_length=317)]], Meta(max_length=64)]
"""Names that tenants are granted; the longest is a label's key, with a domain of 253 characters."""


class AcceptanceSettings(Section, frozen=True):
    """Whether offers are accepted without being asked, and what a new one must fulfil for it.

    ``quota``: the most that all accepted offers lend together, by resource; ``price_ceiling``: the highest price of a
    resource; ``selector``: a label selector for the offer's labels; ``hours``: times of the week, in UTC. ``labels``:
    which labels of offers virtual nodes get, by key, or by prefix with a slash or dot at its end.
    """

    policy: Literal["Manual", "AutoAcceptAll", "AutoAcceptMax"] = "AutoAcceptMax"
    maximum: Annotated[int, Meta(ge=0, le=10000)] = 5
    quota: dict[str, str] = {}
    price_ceiling: dict[str, str] = {}
    selector: str = ""
    hours: list[str] = []
    labels: Granted = msgspec.field(default_factory=lambda: list(SHOWN))


_SERVICE_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer")


_PORTS_OF_NODES: Final = (
    *(22, 179, 2379, 2380, 4240),
    *range(5869, 5877),
    *(6443, 6444, 8472, 9345, 10248, 10249, 10250),
    *range(10255, 10260),
    51820,
)
"""Where nodes listen: ssh, BGP, etcd, Cilium, liqod, API servers (of RKE2 9345), VXLAN, kubelets and other parts of
Kubernetes ("Ports and Protocols"), WireGuard."""


_DEFAULT_REQUESTS: Final = {"cpu": "50m", "memory": "64Mi", "ephemeral-storage": "64Mi"}


OF_TENANT: Final = "{tenant}."
"""At the beginning of a granted host: the tenant's cluster ID, which is a DNS label."""


class HostingSettings(Section, frozen=True):
    """What tenants may do here.

    ``namespace_names`` are the names, with ``*`` for any text, that they may have beside ``<name>-<their ID>``. The
    lists are granted beside what every tenant may (``hosting.tenants.contract``): ``annotations`` and ``labels`` by
    key, or by prefix with a slash or dot at its end. ``service_accounts`` are those of their namespaces whose tokens
    pods may ask for. ``reserved_ports`` no load balancer of theirs has.
    ``ingress_hosts`` are names, with all names under them, for all tenants, or for each its own (``OF_TENANT``);
    ``gateways``, each ``namespace/name``, are those that routes may be of. They are offered.
    ``control_plane_nodes`` auto: only where no other node can be used; true is "yes", false is "no".
    ``storage_classes`` and ``ingress_classes`` empty: all classes of this cluster. ``quota`` soft: a ResourceQuota in
    each namespace, hard: beside that, limits for every container, and ``default_requests`` for one that names none;
    empty: hard for tenants that are new, soft for those from before. ``objects`` are entries of that quota, without
    those that ``uncounted`` names, ``tenant_objects`` those that all namespaces of a tenant have together,
    ``tenant_records`` the most of its records (``hosting.tenants.quota.record_bounds``), ``tenant_contents`` the bytes
    of its config maps and secrets (empty: as many as it likes, and the daemon does not read them), ``tenant_writes``
    those that it writes in a minute (empty: as many as it likes; ``quota.write_bounds``). ``egress`` is what
    pods may reach beside their tenant's namespaces, name servers, the peer and ``egress_networks``.
    ``home_api`` is where pods of peers without a tunnel reach their home's API server by streams (an endpoint); empty:
    nowhere.
    ``unenforced_policies`` is what becomes of pods that NetworkPolicies of their home isolate, where this cluster's
    network plugin is not known to enforce any.
    """

    pod_security: Literal["privileged", "baseline", "restricted"] = "baseline"
    token_lifetime: Annotated[int, Meta(ge=600, le=86400, description="seconds, from 600 to 86400")] = 3600
    namespace_names: Annotated[list[Annotated[str, Meta(max_length=63)]], Meta(max_length=64)] = []
    annotations: Granted = []
    labels: Granted = []
    tolerations: Granted = []
    runtime_classes: Granted = []
    service_accounts: Granted = []
    volumes: Granted = []
    image_pull_policy: Literal["Always", "any"] = "Always"
    control_plane_nodes: ControlPlane | bool = "auto"
    priority_class: str = "liqod-tenant"
    service_types: list[Literal["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]] = msgspec.field(
        default_factory=lambda: list(_SERVICE_TYPES)
    )
    reserved_ports: Annotated[list[Annotated[int, Meta(ge=1, le=65535)]], Meta(max_length=128)] = msgspec.field(
        default_factory=lambda: list(_PORTS_OF_NODES)
    )
    ingress_hosts: Granted = []
    ingress_classes: Granted = []
    gateways: Granted = []
    storage_classes: Granted = []
    quota: Literal["", "none", "soft", "hard"] = ""
    default_requests: dict[str, str] = msgspec.field(default_factory=lambda: dict(_DEFAULT_REQUESTS))
    objects: dict[str, str] = {}
    tenant_objects: dict[str, str] = {}
    tenant_records: dict[Literal["shadowpods", "shadowendpointslices", "shadownetworkpolicysets", "bytes"], str] = {}
    tenant_contents: str = "256Mi"
    tenant_writes: str = "64Mi"
    uncounted: Annotated[list[str], Meta(max_length=64)] = []
    egress: Literal["tenant", "internet", "all"] = "internet"
    egress_networks: Granted = []
    home_api: str = ""
    unenforced_policies: Literal["refuse", "warn"] = "refuse"
    workers: Annotated[int, Meta(ge=1, le=64)] = 16


class KubeletSettings(Section, frozen=True):
    """The virtual kubelets: where their API is served (empty: nowhere), their workers and their node lease.

    ``signer`` is the name of the cluster's signer that certificates of that API are asked of.
    ``node_address_type`` is the type under which virtual nodes show their address; auto: as the cluster needs it.
    ``evict_after`` seconds without a lender its pods are evicted at home; 0: they stay until it is back.
    """

    listen: str = "tcp:5875"
    signer: str = "kubernetes.io/kubelet-serving"
    workers: Annotated[int, Meta(ge=1, le=64)] = 16
    node_address: str = ""
    node_address_type: Literal["auto", "InternalIP", "Hostname"] = "auto"
    lease_duration: Annotated[int, Meta(ge=10, le=600)] = 40
    status_delay: Annotated[float, Meta(ge=0, le=5)] = 0.05
    enable_apiserver_support: bool = True
    evict_after: Annotated[float, Meta(ge=0, le=86400 * 365)] = 0.0


_OF_CLOUDS: Final = (
    "cloud.google.com/neg",
    "cloud.google.com/neg-status",
    "kubernetes.digitalocean.com/load-balancer-id",
    "ingress.kubernetes.io/backends",
    "ingress.kubernetes.io/forwarding-rule",
    "ingress.kubernetes.io/target-proxy",
    "ingress.kubernetes.io/url-map",
    "metallb.universe.tf/address-pool",
    "metallb.universe.tf/ip-allocated-from-pool",
    "metallb.universe.tf/loadBalancerIPs",
    "loadbalancer.openstack.org/load-balancer-id",
)
"""Annotations that providers of clusters put on objects, for the cluster that they are in."""


class Reflected(Section, frozen=True):
    """How one kind is reflected: all but what is annotated otherwise, or nothing but that; 0 workers: not at all."""

    type: Literal["DenyList", "AllowList"] = "DenyList"
    workers: Workers = 3


class Inherited(Section, frozen=True):
    """A kind whose objects are reflected as another object says; 0 workers: not at all."""

    workers: Workers = 10


class ReflectionSettings(Section, frozen=True):
    """What of an offloaded namespace goes to the lenders besides pods (and which events come back)."""

    skip_labels: list[str] = []
    skip_annotations: list[str] = msgspec.field(default_factory=lambda: list(_OF_CLOUDS))
    configmap: Reflected = Reflected()
    secret: Reflected = Reflected()
    service: Reflected = Reflected()
    endpointslice: Inherited = Inherited()
    ingress: Reflected = Reflected()
    httproute: Reflected = Reflected()
    grpcroute: Reflected = Reflected()
    event: Reflected = Reflected()
    serviceaccount: Inherited = Inherited()
    persistentvolumeclaim: Inherited = Inherited(workers=3)
    networkpolicy: Inherited = Inherited(workers=2)


EgressKind = Literal[
    "namespace",
    "pod",
    "configmap",
    "secret",
    "service",
    "endpointslice",
    "ingress",
    "httproute",
    "grpcroute",
    "persistentvolumeclaim",
    "serviceaccount",
]
"""What rules are about. A namespace that stays keeps all that is in it; ``serviceaccount`` are tokens of pods."""
Verdict = Literal["allow", "deny"]


class EgressRuleSettings(Section, frozen=True):
    """A rule for what may leave this cluster; what it does not name it does not ask for.

    ``namespaces`` with ``*`` for any text; ``peers`` are cluster IDs; ``labels`` and ``peer_labels`` are selectors, of
    the object's labels and of those of the peer's ForeignCluster.
    """

    verdict: Verdict
    kinds: list[EgressKind] = []
    namespaces: list[str] = []
    labels: str = ""
    peers: list[Name] = []
    peer_labels: str = ""


class EgressSettings(Section, frozen=True):
    """What of offloaded namespaces may leave this cluster at all: as the first rule says that holds, else ``default``.

    ``contents`` named: secrets and config maps go only to clusters where a pod names them.
    """

    default: Verdict = "allow"
    contents: Literal["all", "named"] = "all"
    rules: list[EgressRuleSettings] = []


_NODE_PATHS: Final = (
    "/opt/local-path-provisioner/*",
    "/var/lib/rancher/k3s/storage/*",
    "/var/local-path-provisioner/*",
    "/var/snap/microk8s/common/default-storage/*",
    "/tmp/hostpath-provisioner/*/*",  # noqa: S108 (a path of minikube's nodes)
)
"""Where the provisioners of common distributions have their volumes."""


class StorageSettings(Section, frozen=True):
    """Claims whose data is made, and stays, where their first pod runs.

    ``virtual-class`` is the storage class that is made for them (empty: none), ``real-class`` what stands behind it in
    this cluster (empty: the cluster's default), with its claims in ``namespace``. Where its volumes are directories of
    nodes, ``node_paths`` says which, each with ``*`` for one part of a path. ``liqodctl move volume`` runs the images.
    """

    enabled: bool = True
    virtual_class: Name = "liqo"
    real_class: str = ""
    namespace: Name = "liqo-storage"
    restic_image: str = "docker.io/restic/restic:0.18.0"
    restic_server_image: str = "docker.io/restic/rest-server:0.14.0"
    node_paths: Granted = msgspec.field(default_factory=lambda: list(_NODE_PATHS))


class OffloadingSettings(Section, frozen=True):
    """Where pods of enabled namespaces go that may run here and elsewhere; a NamespaceOffloading may say otherwise.

    With ``Return`` one pod each ``return_interval`` is evicted to come home, at the earliest ``return_after`` seconds
    after it was created.
    """

    spillover: Literal["None", "HomeFirst", "Return"] = "None"
    return_interval: Annotated[float, Meta(ge=1, le=86400, description="seconds, from 1 to 86400")] = 30.0
    return_after: Annotated[float, Meta(ge=0, le=86400 * 7, description="seconds, from 0 to 604800")] = 300.0


class WebhookSettings(Section, frozen=True):
    """The admission webhook. ``url`` is what the API server calls; empty: https://<node address>:<port of listen>.

    ``service``, ``namespace/name[:port]``, is called instead, where the daemon runs in a pod behind a Service.
    """

    enabled: bool = True
    listen: str = "tcp:5873"
    url: str = ""
    service: str = ""


_SERVICE_POOLS: Final = ("240.0.0.0/5", "fd4c:6971:7000::/40")
_POOLS: Final = ("10.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fd4c:6971:6f00::/40")


class NetworkSettings(Section, frozen=True):
    """Pod traffic between clusters: ``mode`` none leaves the network to others, auto decides that for each peering.

    ``pod-cidrs`` and ``service-cidrs`` empty: found out from the cluster. ``external-cidr-6`` counts beside an
    ``external-cidr`` of IPv4 where pods have IPv6 addresses. ``endpoints`` empty: this host's address and
    ``listen-port``. ``mtu`` 0: from the interface in use. The host of a daemon whose ``role`` is gateway holds the
    tunnels; daemons with the role node, on the other hosts, lead their pods there, and do nothing else. ``node`` is the
    name of the Node that such a host is; empty: the one with this host's address. A network of a peer is known here by
    one out of ``pools``, unless ``accept`` holds it; a network of its Services by one out of ``service_pools``, whose
    addresses no packet has outside of tunnels and overlays. ``rule_priority`` is that of the policy rule for peers'
    networks (ip-rule(8)); with an overlay the one before it is used too.
    ``direct``: pods of one home at two lenders talk by the tunnel between these. agree: here for homes that ask;
    always: our own lenders are asked too.
    """

    mode: Literal["auto", "wireguard", "none"] = "auto"
    role: Literal["gateway", "node"] = "gateway"
    policy: Literal["closed", "open"] = "closed"
    device: Annotated[str, Meta(pattern=r"^[a-z][-a-z0-9]{0,13}\Z", description="at most 14 letters, digits, '-'")] = (
        "liqod"
    )
    listen_port: Annotated[int, Meta(ge=1, le=65535)] = 5871
    probe_port: Annotated[int, Meta(ge=1, le=65535)] = 5872
    endpoints: list[str] = []
    pod_cidrs: list[str] = []
    service_cidrs: list[str] = []
    external_cidr: str = "10.70.0.0/20"
    external_cidr_6: str = "fd4c:6971:6e00::/112"
    pools: list[str] = msgspec.field(default_factory=lambda: list(_POOLS))
    service_pools: list[str] = msgspec.field(default_factory=lambda: list(_SERVICE_POOLS))
    accept: list[str] = []
    reserved: list[str] = []
    rule_priority: Annotated[int, Meta(ge=2, le=32765)] = 18952
    mtu: Annotated[int, Meta(ge=0, le=65535)] = 0
    direct: Literal["never", "agree", "always"] = "never"
    overlay_port: Annotated[int, Meta(ge=1, le=65535)] = 5876
    node: str = ""


class NamesSettings(Section, frozen=True):
    """Names of home for the pods of tenants (docs/names.md).

    ``enabled`` is control's switch: tenants get a name service, and their pods ask it; auto: once one answers, and
    where none does nothing is said. Two processes may answer; the second has ``slot`` 2. Each tenant has a port of its
    own from ``first_port`` on, two with a second process. ``upstream`` empty: the Service kube-dns of kube-system.
    ``queries_per_second`` is for each tenant. At ``home_port`` control takes what the processes ask of tenants' homes;
    0: they ask nothing of them. ``expose`` is whose names this cluster, as home, answers to lenders: of Services in
    namespaces that are offloaded there and of its API server, in all, or in none.
    """

    enabled: Literal["auto"] | bool = "auto"
    slot: Literal[1, 2] = 1
    first_port: Annotated[int, Meta(ge=1024, le=65024, description="a whole number from 1024 to 65024")] = 15360
    upstream: Annotated[list[str], Meta(max_length=4)] = []
    home_port: Annotated[int, Meta(ge=0, le=65535)] = 5870
    expose: Literal["offloaded", "all", "none"] = "offloaded"
    queries_per_second: Annotated[int, Meta(ge=10, le=100000, description="from 10 to 100000")] = 500


class LeaderSettings(Section, frozen=True):
    """The lease that lets one of several daemons of a cluster act while the others stand by.

    ``warm_standby``: they watch meanwhile what the one that leads reads, and take over without lists.
    """

    identity: str = ""
    lease_duration: Annotated[int, Meta(ge=3, le=300)] = 10
    renew_interval: Seconds = 3.0
    retry_interval: Seconds = 2.0
    warm_standby: bool = True


class MetricsSettings(Section, frozen=True):
    """Where /metrics, /healthz and /readyz are served; empty: nowhere.

    ``tls`` own: with the certificate that all daemons of the cluster have in common; files: with ``certificate`` and
    ``key``. ``authentication`` kubernetes: for whom the cluster lets get the path; token: for who has that of
    ``token_file``. Elsewhere than at loopback both are needed.
    """

    listen: str = "tcp:5874:interface=127.0.0.1"
    tls: Literal["none", "own", "files"] = "none"
    certificate: str = ""
    key: str = ""
    authentication: Literal["none", "kubernetes", "token"] = "none"
    token_file: str = ""


class LogSettings(Section, frozen=True):
    """How much is logged, and in which form; docs/logging.md."""

    level: Literal["debug", "info", "warn", "error"] = "info"
    format: Literal["text", "json"] = "text"


class AuditSettings(Section, frozen=True):
    """Where security events are written; an empty ``file``: to the log. ``max_bytes``, ``backups`` bound the files."""

    file: str = ""
    max_bytes: Annotated[int, Meta(ge=64 * 1024, le=1 << 30)] = 10 * 1024 * 1024
    backups: Annotated[int, Meta(ge=0, le=100)] = 5


class Settings(Section, frozen=True):
    """All of the configuration."""

    daemon: DaemonSettings = DaemonSettings()
    cluster: ClusterSettings = ClusterSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    identity: IdentitySettings = IdentitySettings()
    discovery: DiscoverySettings = DiscoverySettings()
    peering: PeeringSettings = PeeringSettings()
    sharing: SharingSettings = SharingSettings()
    acceptance: AcceptanceSettings = AcceptanceSettings()
    hosting: HostingSettings = HostingSettings()
    kubelet: KubeletSettings = KubeletSettings()
    reflection: ReflectionSettings = ReflectionSettings()
    egress: EgressSettings = EgressSettings()
    storage: StorageSettings = StorageSettings()
    offloading: OffloadingSettings = OffloadingSettings()
    webhook: WebhookSettings = WebhookSettings()
    network: NetworkSettings = NetworkSettings()
    names: NamesSettings = NamesSettings()
    leader: LeaderSettings = LeaderSettings()
    metrics: MetricsSettings = MetricsSettings()
    log: LogSettings = LogSettings()
    audit: AuditSettings = AuditSettings()

    @property
    def is_control(self) -> bool:
        """Whether this daemon may be the one that acts for its cluster, and has the rights for it."""
        return self.daemon.role in ("all", "control") and self.network.role == "gateway"
