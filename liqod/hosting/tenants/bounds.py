"""The objects that bound a granted namespace: how much a tenant may keep in it, and what its pods may reach. Pure.

Sources: Kubernetes, "Resource Quotas" (object count quota), "Network Policies".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import attrs

from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.rights import tenant_object
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects import quantity
from liqod.model.objects.quantity import Resources, render
from liqod.model.records.network import Network, covering
from liqod.model.special_networks import SPECIAL

NAME: Final = "liqod-tenant"
"""The name of the ResourceQuota and of the NetworkPolicy in each granted namespace."""
DEFAULT_PODS: Final = 1000
"""Pods for which there is room where the offer does not say how many."""
MAX_BLOCKS: Final = 1000
"""Networks in one list at most: an object has room for some ten thousand of them, a network plugin rarely."""
LEAST: Final[Resources] = {
    "cpu": Fraction(1, 1000),
    "memory": Fraction(4 << 20),
    "ephemeral-storage": Fraction(4 << 20),
}
"""What counts where less is named: the smallest CPU request that Kubernetes knows ("Resource Management for Pods"), and
memory that a small process needs."""

_SECRETS: Final = "count/secrets"
_OF_NAMESPACE: Final = {
    "count/configmaps": "500",
    _SECRETS: "500",
    "count/ingresses.networking.k8s.io": "100",
    "services": "250",
    "services.loadbalancers": "10",
    "services.nodeports": "50",
    "persistentvolumeclaims": "250",
    "requests.storage": "1Ti",
}
_OF_TENANT: Final = {
    "count/configmaps": "5000",
    _SECRETS: "5000",
    "count/ingresses.networking.k8s.io": "1000",
    "services": "2500",
    "services.loadbalancers": "40",
    "services.nodeports": "200",
    "persistentvolumeclaims": "2500",
    "requests.storage": "10Ti",
}
"""All namespaces of a tenant together. A cluster has 2,768 node ports (Kubernetes: ``service-node-port-range``)."""
_ROUTES: Final = {
    "count/httproutes.gateway.networking.k8s.io": "100",
    "count/grpcroutes.gateway.networking.k8s.io": "100",
}
_ROUTES_OF_TENANT: Final = {
    "count/httproutes.gateway.networking.k8s.io": "1000",
    "count/grpcroutes.gateway.networking.k8s.io": "1000",
}
"""Routes are counted where gateways are granted: their definitions are there then, and were for long."""
_LIMITED: Final = ("cpu", "memory", "ephemeral-storage")
"""What a container may have a limit for without asking for it (Kubernetes: "Resource Management for Pods")."""
PRIVATE: Final = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
"""Private networks (RFC 1918, RFC 4193), and shared ones (RFC 6598), which clouds use for their own services."""
EVERY_POD: Final[Mapping[str, None]] = {"matchLabels": None, "matchExpressions": None}
"""The empty selector, as a merge patch has to say it: ``{}`` would leave the terms that somebody added (RFC 7396)."""
_PUBLIC: Final[tuple[Network, ...]] = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("2000::/3"))
"""Where public addresses are: IPv6 has assigned no others (IANA, "IPv6 Global Unicast Address Assignments")."""
# CoreDNS of OpenShift serves pods at port 5353; a Service's port is translated before a NetworkPolicy is applied.
DNS_PORTS: Final = (53, 5353)
_DNS_PORTS: Final = [{"protocol": protocol, "port": port} for protocol in ("UDP", "TCP") for port in DNS_PORTS]
_DNS_NAMESPACES: Final = ["kube-system", "openshift-dns"]
_NODE_LOCAL_DNS: Final = "169.254.20.10/32"
"""The address of NodeLocal DNSCache (Kubernetes: "Using NodeLocal DNSCache")."""


@attrs.frozen
class KnownNetworks:
    """The networks around a tenant: this cluster's ``own``, and the ``peer``'s as seen here (None: not known).

    ``streams`` is where its pods reach home's API server without a tunnel, an address and a port; None: nowhere.
    """

    own: Sequence[Network] = ()
    peer: Sequence[Network] | None = None
    name_servers: Sequence[tuple[str, int]] = ()
    streams: tuple[str, int] | None = attrs.field(default=None, kw_only=True)


def most_of_namespace(contract: Contract, offered: Resources | None) -> Resources:
    """Return the most of each resource that one granted namespace may have; empty where there is no quota.

    Requests of pods are not in it: the ledger counts them for all namespaces of the tenant together. Our own resources
    are not either: until the controller manager has discovered and counted them, which takes minutes after a new
    definition, the API server refuses every one ("status unknown for quota").
    """
    if contract.granted.quota == "none":
        return {}
    # What is bounded for the tenant alone may all be in one namespace.
    found = {
        **quantity.parse_all(contract.granted.tenant_objects),
        **_with_tokens(_OF_NAMESPACE, offered),
        **(quantity.parse_all(_ROUTES) if contract.granted.gateways else {}),
        **quantity.parse_all(contract.granted.objects),
    }
    return {name: most for name, most in found.items() if name not in contract.granted.uncounted}


def most_of_tenant(contract: Contract, offered: Resources | None) -> Resources:
    """Return the most of each resource that all namespaces of a tenant have together: no less than one of them may
    have. A resource that is not in it has no sum.
    """
    one = most_of_namespace(contract, offered)
    every = _with_tokens(_OF_TENANT, offered) | quantity.parse_all(_ROUTES_OF_TENANT)
    total = {name: max(most, one[name]) for name, most in every.items() if name in one}
    return total | quantity.parse_all(contract.granted.tenant_objects)


def resource_quota(peer: str, namespace: str, hard: Resources) -> dict[str, Any]:
    """Return the quota of a granted namespace."""
    spec = {"hard": {name: render(most, resource=name.removeprefix("requests.")) for name, most in hard.items()}}
    return {**tenant_object("v1", "ResourceQuota", NAME, namespace, peer), "spec": spec}


def _with_tokens(amounts: Mapping[str, str], offered: Resources | None) -> dict[str, Fraction]:
    """Return amounts with room for a secret for each pod that is lent: that with the token of its home."""
    found = quantity.parse_all(amounts)
    found[_SECRETS] += int((offered or {}).get("pods", DEFAULT_PODS))
    return found


def network_policy(peer: str, namespace: str, contract: Contract, around: KnownNetworks) -> dict[str, Any] | None:
    """Return the network policy of a granted namespace; None where its pods may reach everything."""
    level = contract.granted.egress
    if level == "all":
        return None
    open_networks = [*(around.peer or ()), *map(ipaddress.ip_network, contract.granted.egress_networks)]
    blocks = [{"ipBlock": {"cidr": str(one)}} for one in covering(open_networks, MAX_BLOCKS)]
    if level == "internet":
        # Where others connect the clusters, the peer's networks are private ones that are not known here. So are those
        # beside this cluster's nodes, such as a database's: which of them are the peer's is the administrator's to say
        # (``egress_networks``).
        blocks += _without(_PUBLIC, [*SPECIAL, *map(ipaddress.ip_network, PRIVATE), *around.own])
    egress: list[dict[str, Any]] = [
        {"to": [{"namespaceSelector": {"matchLabels": {REMOTE_CLUSTER_LABEL: peer}}}]},
        {"to": dns_peers(), "ports": _DNS_PORTS},
    ]
    egress += [_to_name_server(address, port) for address, port in around.name_servers]
    if around.streams is not None:
        egress.append(_to_streams(*around.streams))
    if blocks:  # a rule without destinations would allow all (Kubernetes API: NetworkPolicyEgressRule)
        egress.append({"to": blocks})
    spec = {"podSelector": EVERY_POD, "policyTypes": ["Egress"], "egress": egress}
    return {**tenant_object("networking.k8s.io/v1", "NetworkPolicy", NAME, namespace, peer), "spec": spec}


def dns_peers() -> list[dict[str, Any]]:
    """Return the peers that are this cluster's name servers."""
    # The API server itself sets this label on every namespace, so that nobody can take another's name by a label.
    term = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": _DNS_NAMESPACES}
    return [{"namespaceSelector": {"matchExpressions": [term]}}, {"ipBlock": {"cidr": _NODE_LOCAL_DNS}}]


def _to_name_server(address: str, port: int) -> dict[str, Any]:
    """Return the rule for the tenant's own port of a name service; those of other tenants stay closed."""
    block = {"cidr": f"{address}/{128 if ':' in address else 32}"}
    return {"to": [{"ipBlock": block}], "ports": [{"protocol": one, "port": port} for one in ("UDP", "TCP")]}


def _to_streams(address: str, port: int) -> dict[str, Any]:
    """Return the rule for the port of this daemon at which streams to home's API server begin."""
    block = {"cidr": f"{address}/{128 if ':' in address else 32}"}
    return {"to": [{"ipBlock": block}], "ports": [{"protocol": "TCP", "port": port}]}


def default_requests(contract: Contract, offered: Resources | None) -> Resources:
    """Return what a container requests that names neither request nor limit: of what is lent, at the level ``hard``."""
    if contract.granted.quota != "hard" or not offered:
        return {}
    wanted = quantity.parse_all(contract.granted.default_requests)
    return {name: min(value, offered[name]) for name, value in wanted.items() if name in offered}


def limit_range(peer: str, namespace: str, defaults: Resources) -> dict[str, Any]:
    """Return the object by which the API server sets the same requests in pods that somebody else creates.

    It has no limits: those follow the offer, which changes more often than each namespace should be written.
    """
    item = {"type": "Container", "defaultRequest": quantity.render_all(defaults)}
    return {**tenant_object("v1", "LimitRange", NAME, namespace, peer), "spec": {"limits": [item]}}


def with_limits(spec: Mapping[str, Any], offered: Resources | None, defaults: Resources) -> dict[str, Any]:
    """Return a pod spec of which no container may use more than the whole offer, for the quota level ``hard``.

    A limit that is named is lowered to the offer, though not below the request; what is within it stays as it is
    written. ``defaults`` are the requests of a container that names none, or 0 (``at_least``). Where the pod as a
    whole requests something or has a limit, its containers get neither, since theirs together may not be more
    (Kubernetes, KEP-2837), and the pod has the limit and the request. Raises ValueError for an amount that is none.
    """
    whole = spec.get("resources") or {}
    of_pod = {*(whole.get("limits") or {}), *(whole.get("requests") or {})}
    bounds = {name: offered[name] for name in _LIMITED if name in offered} if offered else {}
    every = {name: render(most, resource=name) for name, most in bounds.items()}
    limits = {name: text for name, text in every.items() if name not in of_pod}
    requests = {name: render(defaults.get(name, Fraction(0)), resource=name) for name in limits}
    whole = _limited(whole, bounds, {name: text for name, text in every.items() if name in of_pod}, {})
    whole = _requested(whole, {name: value for name, value in defaults.items() if name in of_pod})
    of_each = {name: value for name, value in defaults.items() if name not in of_pod}
    # Without a request the LimitRange would set the default one.
    requests |= {name: "0" for name in whole.get("requests") or {} if name in defaults}
    made = _with_resources(spec, whole)
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            made[kind] = [
                _with_resources(
                    container,
                    _requested(_limited(container.get("resources") or {}, bounds, limits, requests), of_each),
                )
                for container in spec[kind]
            ]
    return made


def _limited(
    resources: Mapping[str, Any], bounds: Resources, limits: Mapping[str, str], requests: Mapping[str, str]
) -> Mapping[str, Any]:
    """Return resources with ``limits`` and ``requests`` where they name none, and no limit above ``bounds``."""
    named, asked = resources.get("limits") or {}, resources.get("requests") or {}
    # A limit of 0 is none (CRI, LinuxContainerResources).
    lowered = {name: _within(name, named[name], asked, most) for name, most in bounds.items() if most and name in named}
    # A limit without a request would become the request (defaulting of the API server).
    added = {name: text for name, text in requests.items() if name not in named}
    added |= {name: named[name] for name, text in lowered.items() if text != named[name]}
    made = {"limits": {**limits, **named, **lowered}, "requests": {**added, **asked}}
    changed = {kind: amounts for kind, amounts in made.items() if amounts != (resources.get(kind) or {})}
    return {**resources, **changed}


def _requested(resources: Mapping[str, Any], defaults: Resources) -> Mapping[str, Any]:
    """Return resources that request at least the defaults, or what stands for less (``at_least``)."""
    requests = resources.get("requests") or {}
    limits = quantity.parse_all(resources.get("limits") or {})
    asked = {**limits, **quantity.parse_all(requests)}
    least = at_least(asked, limits, defaults, defaults)
    more = {name: render(least[name], resource=name) for name in defaults if least[name] != asked.get(name)}
    return {**resources, "requests": {**requests, **more}} if more else resources


def _within(name: str, limit: Any, asked: Mapping[str, Any], most: Fraction) -> Any:
    """Return a limit, lowered to ``most`` though not below its request; one of 0 would be none."""
    amount, request = quantity.parse(str(limit)), quantity.parse(str(asked.get(name, limit)))
    highest = max(most, request)
    return limit if 0 < amount <= highest else render(highest, resource=name)


def _with_resources(thing: Mapping[str, Any], resources: Mapping[str, Any]) -> dict[str, Any]:
    return {**thing, "resources": resources} if resources != (thing.get("resources") or {}) else dict(thing)


def _without(wholes: Iterable[Network], closed: Iterable[Network]) -> Iterator[dict[str, Any]]:
    """Yield each of the wholes without what is closed in it; none that is closed as a whole."""
    networks = covering(closed, MAX_BLOCKS)
    for whole in wholes:
        if not any(_is_inside(whole, one) for one in networks):
            inside = [str(one) for one in networks if _is_inside(one, whole)]
            yield {"ipBlock": {"cidr": str(whole), "except": inside}}


def _is_inside(one: Network, wide: Network) -> bool:
    return one.version == wide.version and one.prefixlen >= wide.prefixlen and one.network_address in wide


def at_least(asked: Resources, limits: Resources, defaults: Resources, names: Iterable[str]) -> Resources:
    """Return requests with the default for each of ``names`` that is missing or 0, and ``LEAST`` for one that is less.

    A request of 0 is none, and one of a byte next to it: such pods would fit an offer however many there are.

    ``asked`` has the limits of what is not requested. Neither is more than the limit, beyond which nothing is used; a
    limit of 0 is none (CRI, LinuxContainerResources).
    """
    found = dict(asked)
    for name in names:
        default, named = defaults[name], asked.get(name)
        least = max(named or default, min(default, LEAST.get(name, default)))
        most = limits.get(name) or least
        found[name] = max(named or Fraction(0), min(least, most))
    return found
