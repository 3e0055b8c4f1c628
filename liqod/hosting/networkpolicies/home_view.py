"""Whom a rule of home's names, as it can be said here: the tenant's pods by labels, everybody else by addresses. Pure.

Network plugins match the pods of their own cluster by labels, and most of them not by ipBlock; what is elsewhere has
no labels here. Source: Kubernetes, "Network Policies" (behavior of ``to`` and ``from`` selectors).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from liqod.hosting.networkpolicies.blocks import Block, Blocks, block_of, collapsed, contains, moved
from liqod.hosting.networkpolicies.facts import HomeFacts, PodElsewhere
from liqod.hosting.networkpolicies.objects import CheckedPeer, CheckedRule, Terms, UnsupportedField, matches
from liqod.hosting.networkpolicies.ports import RulePorts
from liqod.hosting.tenants.bounds import PRIVATE
from liqod.model.records.network import Network
from liqod.model.special_networks import SPECIAL

MAX_WORK: Final = 500_000
"""Comparisons of selectors with namespaces and kinds of pods at most, for the policies of one namespace."""

_NOT_PUBLIC: Final = (*map(ipaddress.ip_network, PRIVATE), *SPECIAL)


@attrs.frozen
class Everybody:
    """Every address, and every pod."""


@attrs.frozen
class Here:
    """Pods of the tenant here by their labels, in namespaces by their names here (None: in all of its own)."""

    namespaces: frozenset[str] | None = None
    pods: Terms = frozenset()


Named = Everybody | Here | Block


@attrs.frozen
class _Kind:
    """Pods elsewhere that no rule tells apart, with their addresses."""

    pod: PodElsewhere
    hosts: tuple[Block, ...]


class HomeView:
    """Home's endpoints, prepared for all rules of one namespace."""

    def __init__(self, facts: HomeFacts) -> None:
        self._facts = facts
        self._work = MAX_WORK
        grouped: dict[tuple[object, ...], tuple[PodElsewhere, list[Network]]] = {}
        for pod in facts.pods:
            key = (pod.namespace, frozenset(pod.labels.items()), frozenset(pod.ports))
            hosts = grouped.setdefault(key, (pod, []))[1]
            hosts += [ipaddress.ip_network(one) for one in pod.addresses]
        self._kinds: dict[str, list[_Kind]] = {}
        for pod, hosts in grouped.values():
            self._kinds.setdefault(pod.namespace, []).append(_Kind(pod, tuple(map(Block, collapsed(hosts)))))

    def egress(self, rule: CheckedRule) -> Iterator[tuple[RulePorts, Named]]:
        """Yield what a rule for traffic out of pods names; named ports are those of the pod at the other end."""
        named = self._named(rule)
        for one in named:
            yield RulePorts(rule.ports.ranges), one
        if not rule.ports.names:
            return
        by_name = RulePorts(frozenset(), rule.ports.names)
        for one in named:
            if isinstance(one, Here):
                yield by_name, one
            elif isinstance(one, Everybody):
                yield by_name, Here()
        known = Blocks(_everywhere() if Everybody() in named else [one for one in named if isinstance(one, Block)])
        for kind in (one for kinds in self._kinds.values() for one in kinds):
            self.spend(1, rule.field)
            numbers = {
                (protocol, port, port)
                for name, protocol, port in kind.pod.ports
                if (protocol, name) in rule.ports.names
            }
            if numbers:
                ports = RulePorts(frozenset(numbers))
                yield from ((ports, found) for host in kind.hosts for found in known.meet(host))

    def ingress(self, rule: CheckedRule) -> Iterator[tuple[RulePorts, Named]]:
        """Yield what a rule for traffic into pods names; named ports are those of the pod here, not the caller's."""
        for one in self._named(rule):
            yield rule.ports, one

    def stand_ins(self, rule: CheckedRule) -> Iterator[tuple[RulePorts, Sequence[Mapping[str, Any]]]]:
        """Yield the ports and peers of what stands here for an endpoint of home that a rule for egress allows."""
        by_name = rule.ports.names
        if not self._facts.stand_ins:
            return
        blocks = Blocks(block for peer in rule.peers if peer.block for block in self._translated(peer.block))
        for one in self._facts.stand_ins:
            self.spend(len(rule.peers) + len(one.pod.addresses), rule.field)
            hosts = [Block(ipaddress.ip_network(address)) for address in one.pod.addresses]
            known = [peer for peer in rule.peers if self._selects(peer, one.pod)]
            if not rule.peers or known or any(list(blocks.meet(host)) for host in hosts):
                names = {(protocol, port) for name, protocol, port in one.pod.ports if (protocol, name) in by_name}
                ranges = frozenset(
                    (protocol, port, port)
                    for protocol in ("TCP", "UDP")
                    if rule.ports.has(protocol, one.port) or (protocol, one.port) in names
                    for port in one.ports
                )
                if ranges:
                    yield RulePorts(ranges), one.peers

    def _named(self, rule: CheckedRule) -> list[Named]:
        if not rule.peers:
            return [Everybody()]
        found: list[Named] = []
        for peer in rule.peers:
            if peer.block is None:
                found += self._by_labels(peer)
            else:
                found += self._translated(peer.block)
        if self._covers_here(rule):
            found.append(Here())
        return found

    def _by_labels(self, peer: CheckedPeer) -> Iterator[Named]:
        self.spend(len(self._facts.namespaces), peer.field)
        selected = [one for one in self._facts.namespaces if self._is_selected(peer, one.name, one.labels)]
        here = frozenset(one.here for one in selected if one.here)
        if here:
            # All namespaces are not listed: there may be a thousand, and a new one is one of them.
            yield Here(None if peer.namespaces == frozenset() else here, peer.pods)
        for kinds in (self._kinds.get(one.name, ()) for one in selected):
            self.spend(len(kinds), peer.field)
            for kind in kinds:
                if matches(peer.pods, kind.pod.labels):
                    self.spend(len(kind.hosts), peer.field)
                    yield from kind.hosts

    def _is_selected(self, peer: CheckedPeer, name: str, labels: Mapping[str, str]) -> bool:
        if peer.namespaces is None:
            return name == self._facts.namespace
        return matches(peer.namespaces, labels)

    def _selects(self, peer: CheckedPeer, pod: PodElsewhere) -> bool:
        if peer.block is not None or not matches(peer.pods, pod.labels):
            return False
        of_it = [one for one in self._facts.namespaces if one.name == pod.namespace]
        return any(self._is_selected(peer, one.name, one.labels) for one in of_it)

    def _translated(self, block: Block) -> Iterator[Block]:
        """Yield where the addresses that home means are here: translated ones, and public ones, which stay.

        Another private address means something else in each cluster.
        """
        pairs, here = self._facts.addresses.pairs, self._facts.here
        known = [one for pair in pairs for one in pair]
        public = block_of(block.network, (*block.excepts, *_NOT_PUBLIC, *known, *here))
        if public is not None:
            yield public
        for index, (before, after) in enumerate(pairs):
            if contains(block.network, before):
                narrow = before
            elif contains(before, block.network):
                narrow = block.network
            else:
                continue
            # As in AddressMap, the first of two networks that overlap translates an address.
            part = block_of(narrow, (*block.excepts, *here, *(one for one, _ in pairs[:index])))
            if part is not None:
                yield Block(
                    moved(part.network, before, after), tuple(moved(one, before, after) for one in part.excepts)
                )

    def spend(self, work: int, field: str) -> None:
        """Count work for a rule; raises UnsupportedField beyond ``MAX_WORK``."""
        self._work -= work
        if self._work < 0:
            message = "the rules of a namespace select among too many pods and networks; use fewer rules"
            raise UnsupportedField(field, "TooManyPeers", message)

    def left_out(self, rule: CheckedRule) -> Iterator[UnsupportedField]:
        """Yield which of a rule's blocks name somebody at home whom they cannot name here."""
        if self._covers_here(rule) is None:
            yield UnsupportedField(
                rule.field,
                "BlockSplitsPods",
                "an ipBlock has a part of the addresses of the pods that run here, and so holds for none of them; name "
                "these pods by a podSelector, or have all of "
                f"{', '.join(map(str, self._facts.here))} in the ipBlocks of one rule",
            )
        for peer in rule.peers:
            if peer.block and not any(self._translated(peer.block)) and not self._overlap_here([peer.block]):
                yield UnsupportedField(
                    f"{peer.field}.ipBlock",
                    "BlockNotKnown",
                    f"{peer.block.network} is neither public nor of the peering, and means something else here",
                )

    def _covers_here(self, rule: CheckedRule) -> bool | None:
        """Return whether a rule's blocks have all or none of the addresses at home of pods here; None for a part.

        Labels, by which these pods are named, cannot say a part.
        """
        found = self._overlap_here([one.block for one in rule.peers if one.block is not None])
        if not found:
            return False
        return True if all(Block(one) in found for one in self._facts.here) else None

    def _overlap_here(self, blocks: Sequence[Block]) -> list[Block]:
        known = Blocks(blocks)
        return [left for one in self._facts.here for left in known.meet(Block(one))]


def _everywhere() -> list[Block]:
    return [Block(ipaddress.ip_network(one)) for one in ("0.0.0.0/0", "::/0")]
