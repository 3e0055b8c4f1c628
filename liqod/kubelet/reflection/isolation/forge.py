"""Forges the record of a namespace's policies: what they say, and whom at home they name. Pure.

Only what rules name goes to the lender, and of it only the labels that selectors ask for and the ports that rules name.
An address that is not known yet is left out; that closes.

Source: Kubernetes, "Network Policies" (behavior of ``to`` and ``from`` selectors, targeting ports).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from attrs import frozen

from liqod.kubelet.reflection.isolation.views import AnyPod
from liqod.model.objects.label_selector import LabelRequirement, matches
from liqod.model.records.home_policies import (
    MAX_ADDRESSES,
    MAX_BYTES,
    MAX_KINDS,
    MAX_MAPPED,
    MAX_NAMESPACES,
    MAX_POLICIES,
    MAX_SERVERS,
    MAX_WITHHELD,
    DirectAddress,
    HomeNamespace,
    HomePoliciesSpec,
    HomePolicy,
    MappedAddress,
    NamedPort,
    PodKind,
)

NAME_SERVERS: Final[Mapping[str, Mapping[str, str]]] = {
    "kube-system": {"k8s-app": "kube-dns"},
    "openshift-dns": {"dns.operator.openshift.io/daemonset-dns": "default"},
}
"""The labels of name servers by their namespaces: CoreDNS has that of its forerunner everywhere (Kubernetes, "Using
CoreDNS for Service Discovery"), OpenShift its own (cluster-dns-operator)."""

Terms = tuple[LabelRequirement, ...]


def _not_direct(address: str) -> tuple[str, str] | None:
    return None


@frozen
class HomeSeen:
    """Home as the lender sees it.

    ``namespaces`` are all, with their labels; ``pods`` returns those of one that run elsewhere than at the lender.
    ``seen`` is an address as the lender sees it, empty while that is not known; ``direct`` is the other lender with the
    pod of an address, and its address there, where the two are connected directly. ``exported`` are the addresses that
    are no pods and reached from there; ``withheld`` the labels that pods do not take along.
    """

    namespaces: Mapping[str, Mapping[str, str]]
    pods: Callable[[str], Iterable[AnyPod]]
    seen: Callable[[str], str]
    exported: Sequence[str] = ()
    withheld: Sequence[str] = ()
    direct: Callable[[str], tuple[str, str] | None] = _not_direct


@frozen
class _Peer:
    """Whom a rule selects: pods in namespaces (None: the policy's own)."""

    namespaces: Terms | None
    pods: Terms


def needs_home(specs: Iterable[Any]) -> bool:
    """Return whether policies name anything of which more than they themselves has to be known: a peer, or a port."""
    return any(True for rule, end in _rules(specs) if rule.get(end) or rule.get("ports"))


def record(local: str, specs: Mapping[str, Any], home: HomeSeen) -> HomePoliciesSpec:
    """Return the record of a namespace; ``specs`` are those of its policies by name."""
    rules = [(rule, end) for one in specs.values() for rule, end in _rules((one,))]
    given = [peer for rule, end in rules for peer in rule.get(end) or ()]
    peers = {_peer(one) for one in given if "ipBlock" not in one}
    names = {port["port"] for rule, _ in rules for port in rule.get("ports") or () if isinstance(port.get("port"), str)}
    # The name of a port is resolved at each pod that a rule allows, also at those that no selector of it names.
    by_name = any(
        end == "to" and _has_names(rule) and (not rule.get(end) or any("ipBlock" in one for one in rule[end]))
        for rule, end in rules
    )
    asked = _Asked(local, peers, frozenset(names), by_name=by_name)
    blocks = [one["ipBlock"].get("cidr", "") for one in given if "ipBlock" in one]
    return HomePoliciesSpec(
        policies=[HomePolicy(name=name, spec=specs[name]) for name in sorted(specs)][:MAX_POLICIES],
        namespaces=asked.namespaces(home)[:MAX_NAMESPACES],
        pods=_bounded(asked.pods(home)),
        name_servers=asked.name_servers(home)[:MAX_SERVERS] if any(end == "to" for _, end in rules) else [],
        addresses=_mapped(blocks, home)[:MAX_MAPPED],
        withheld=sorted(home.withheld)[:MAX_WITHHELD],
    )


def fitting(made: HomePoliciesSpec) -> HomePoliciesSpec:
    """Return a record that a lender reads: without pods where it is too large with them, so that they are closed."""
    if len(msgspec.json.encode(made)) <= MAX_BYTES:
        return made
    return msgspec.structs.replace(made, pods=[], addresses=[])


def exported_in(spec: msgspec.Raw) -> frozenset[str]:
    """Return the exported addresses of home that a record at the lender names; none of one that is not ours."""
    try:
        found = msgspec.json.decode(spec, type=HomePoliciesSpec).addresses[:MAX_MAPPED]
        return frozenset(str(ipaddress.ip_address(one.home)) for one in found)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return frozenset()


class _Asked:
    """What rules ask for."""

    def __init__(self, local: str, peers: Iterable[_Peer], names: frozenset[str], *, by_name: bool) -> None:
        self._local = local
        self._peers = tuple(peers)
        self._names = names
        self._by_name = by_name
        self._keys = {term.key for one in self._peers for term in one.pods}
        self._namespace_keys = {term.key for one in self._peers for term in one.namespaces or ()}

    def namespaces(self, home: HomeSeen) -> list[HomeNamespace]:
        """Return the namespaces that are selected: with labels, since without them a selector may select more."""
        return [
            HomeNamespace(name=name, labels=_only(labels, self._namespace_keys))
            for name, labels in sorted(home.namespaces.items())
            if any(self._has(one, name, labels) for one in self._peers)
        ]

    def pods(self, home: HomeSeen) -> list[PodKind]:
        """Return the pods that are selected, or have a port of a name that a rule asks for."""
        grouped: dict[str, tuple[PodKind, list[str], list[DirectAddress]]] = {}
        for name, labels in sorted(home.namespaces.items()):
            peers = [one for one in self._peers if self._has(one, name, labels)]
            if not peers and not self._by_name:
                continue
            for pod in home.pods(name):
                ports = self._ports(pod)
                if not (self._by_name and ports) and not any(matches(one.pods, pod.metadata.labels) for one in peers):
                    continue
                addresses = [seen for one in pod.addresses if (seen := home.seen(one))]
                straight = [found for one in pod.addresses if (found := home.direct(one)) is not None]
                if addresses or straight:
                    kind = PodKind(namespace=name, labels=_only(pod.metadata.labels, self._keys), ports=ports)
                    key = repr((name, sorted(kind.labels.items()), ports))
                    _, known, direct = grouped.setdefault(key, (kind, [], []))
                    known.extend(addresses)
                    direct.extend(DirectAddress(lender=one, address=two) for one, two in straight)
        return [_with(kind, addresses, direct) for _, (kind, addresses, direct) in sorted(grouped.items())]

    def name_servers(self, home: HomeSeen) -> list[PodKind]:
        """Return the name servers of home's own pods."""
        found: dict[str, tuple[PodKind, list[str]]] = {}
        for name, labels in NAME_SERVERS.items():
            for pod in home.pods(name) if name in home.namespaces else ():
                if labels.items() <= pod.metadata.labels.items():
                    ports = [NamedPort(name=one, protocol=two, port=three) for one, two, three in pod.named_ports]
                    kind = PodKind(namespace=name, labels=_only(pod.metadata.labels, self._keys), ports=ports)
                    key = repr((name, sorted(kind.labels.items()), ports))
                    found.setdefault(key, (kind, []))[1].extend(filter(None, map(home.seen, pod.addresses)))
        return [_with(kind, addresses) for _, (kind, addresses) in sorted(found.items())]

    def _has(self, peer: _Peer, name: str, labels: Mapping[str, str]) -> bool:
        return name == self._local if peer.namespaces is None else matches(peer.namespaces, labels)

    def _ports(self, pod: AnyPod) -> list[NamedPort]:
        found = sorted({one for one in pod.named_ports if one[0] in self._names})
        return [NamedPort(name=name, protocol=protocol, port=port) for name, protocol, port in found]


def _rules(specs: Iterable[Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    for spec in specs:
        for direction, end in (("ingress", "from"), ("egress", "to")):
            for rule in (spec or {}).get(direction) or ():
                yield rule, end


def _has_names(rule: Mapping[str, Any]) -> bool:
    return any(isinstance(one.get("port"), str) for one in rule.get("ports") or ())


def _peer(peer: Mapping[str, Any]) -> _Peer:
    namespaces = peer.get("namespaceSelector")
    return _Peer(None if namespaces is None else _terms(namespaces), _terms(peer.get("podSelector") or {}))


def _terms(selector: Mapping[str, Any]) -> Terms:
    labels: Mapping[str, str] = selector.get("matchLabels") or {}
    equal = [LabelRequirement(key, True, frozenset((value,))) for key, value in sorted(labels.items())]
    listed = []
    for one in selector.get("matchExpressions") or ():
        wanted, values = one["operator"] in ("In", "Exists"), one.get("values")
        listed.append(LabelRequirement(one["key"], wanted, frozenset(values) if values else None))
    return (*equal, *listed)


def _only(labels: Mapping[str, str], keys: set[str]) -> dict[str, str]:
    return {key: labels[key] for key in sorted(keys) if key in labels}


def _with(kind: PodKind, addresses: Iterable[str], direct: Iterable[DirectAddress] = ()) -> PodKind:
    return PodKind(
        namespace=kind.namespace,
        labels=kind.labels,
        ports=kind.ports,
        addresses=sorted(set(addresses))[:MAX_ADDRESSES],
        direct=sorted(set(direct), key=lambda one: (one.lender, one.address))[:MAX_ADDRESSES],
    )


def _bounded(kinds: Sequence[PodKind]) -> list[PodKind]:
    """Return as many kinds as a record has room for."""
    found, left = [], MAX_ADDRESSES
    for one in kinds[:MAX_KINDS]:
        addresses = one.addresses[:left]
        direct = one.direct[: left - len(addresses)]
        if left:
            found.append(_with(one, addresses, direct))
        left -= len(addresses) + len(direct)
    return found


def _mapped(blocks: Iterable[str], home: HomeSeen) -> list[MappedAddress]:
    networks = [ipaddress.ip_network(one, strict=False) for one in blocks if one]
    found = []
    for address in sorted(set(home.exported)):
        parsed = ipaddress.ip_address(address)
        if (here := home.seen(address)) and any(parsed in one for one in networks):
            found.append(MappedAddress(home=address, here=here))
    return found
