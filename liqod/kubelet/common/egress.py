"""What may leave home at all: rules by kind, namespace, label, peer and the peer's labels, out of the settings. Pure.

The rules are tried in their order, and the first that holds decides; without one the default does. The labels of a peer
are those that its ForeignCluster has here: an administrator of this cluster sets them, and no peer does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

import attrs

from liqod.config.schema import EgressSettings, Verdict
from liqod.model.objects import label_selector
from liqod.model.objects.label_selector import LabelRequirement, matches

DENIED: Final = "EgressDenied"
"""The reason at an object that stays at home."""


@attrs.frozen(kw_only=True)
class EgressRule:
    """A rule; what it does not name it does not ask for. ``number`` is its place in the settings, from 1.

    ``namespaces`` are names, with ``*`` for any text; ``labels`` are those of the object, of the pod where it is a
    token, and of the service as well where it is a slice.
    """

    number: int
    verdict: Verdict
    kinds: frozenset[str] = frozenset()
    namespaces: tuple[str, ...] = ()
    labels: tuple[LabelRequirement, ...] = ()
    peers: frozenset[str] = frozenset()
    peer_labels: tuple[LabelRequirement, ...] = ()

    def is_about(self, peer: str, labels: Mapping[str, str]) -> bool:
        """Return whether the rule is about a peer with these labels."""
        return (not self.peers or peer in self.peers) and matches(self.peer_labels, labels)

    def holds(self, kind: str, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the rule is about an object."""
        return (
            (not self.kinds or kind in self.kinds)
            and (not self.namespaces or any(fnmatchcase(namespace, pattern) for pattern in self.namespaces))
            and matches(self.labels, labels)
        )


@attrs.frozen
class Egress:
    """What may leave home for one peer: the rules that are about it, and what holds without one."""

    rules: tuple[EgressRule, ...] = ()
    default: Verdict = "allow"

    @classmethod
    def to(cls, peer: str, labels: Mapping[str, str], rules: Iterable[EgressRule], default: Verdict) -> Egress:
        """Return what may leave home for a peer with these labels."""
        return cls(tuple(rule for rule in rules if rule.is_about(peer, labels)), default)

    def objection(self, kind: str, namespace: str, labels: Mapping[str, str]) -> str:
        """Return why an object stays at home, as the end of a sentence; empty if it may leave."""
        rule = next((rule for rule in self.rules if rule.holds(kind, namespace, labels)), None)
        verdict = self.default if rule is None else rule.verdict
        if verdict == "allow":
            return ""
        what = f"namespace {namespace}" if kind == "namespace" else f"{kind} in namespace {namespace}"
        if rule is None:
            return f"no rule under [egress] lets it leave this cluster for that one ({what})"
        return f"rule {rule.number} under [egress] keeps it in this cluster ({what})"


def egress_to(peer: str, labels: Mapping[str, str], settings: EgressSettings) -> Egress:
    """Return what may leave home for a peer, whose ForeignCluster has these labels."""
    rules = [
        EgressRule(
            number=number,
            verdict=rule.verdict,
            kinds=frozenset(rule.kinds),
            namespaces=tuple(rule.namespaces),
            labels=label_selector.parse(rule.labels),
            peers=frozenset(rule.peers),
            peer_labels=label_selector.parse(rule.peer_labels),
        )
        for number, rule in enumerate(settings.rules, 1)
    ]
    return Egress.to(peer, labels, rules, settings.default)
