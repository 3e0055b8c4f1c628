"""Compiles home's NetworkPolicies of one namespace: what home allows, as far as this cluster's bounds allow it. Pure.

Policies only allow, and what several of them allow adds up (Kubernetes: "Network Policies"). So a policy of home never
stands beside the bounds: each rule made here is the intersection of one of home's with one of the bounds, and names its
peers. The default, which opens all that the bounds do, selects the pods that no policy of home isolates for egress; a
label says which. One more policy allows nothing and selects all pods, so that a label that is late or wrong never takes
a pod out of the bounds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from liqod.hosting.networkpolicies.blocks import Block
from liqod.hosting.networkpolicies.checks import REST, checked
from liqod.hosting.networkpolicies.facts import Bounds, HomeFacts
from liqod.hosting.networkpolicies.home_view import Here, HomeView
from liqod.hosting.networkpolicies.objects import CheckedPolicy, CheckedRule, ClosedField, UnsupportedField, matches
from liqod.hosting.networkpolicies.opened import EVERYTHING, OpenedRule, Target, raw
from liqod.hosting.networkpolicies.ports import RulePorts
from liqod.hosting.networkpolicies.written import WrittenRules, entries_in, selector
from liqod.hosting.tenants.bounds import NAME
from liqod.hosting.tenants.rights import tenant_object
from liqod.model.names import ISOLATED_LABEL
from liqod.model.records.network import MAX_PODS

FLOOR: Final = f"{NAME}-floor"
"""The policy that allows no egress, for every pod."""
CLOSED: Final = f"{NAME}-closed"
"""The policy that allows nothing, for every pod, instead of policies of home that are not read."""
PREFIX: Final = "liqod-home-"
"""What the names of compiled policies begin with; home's name follows."""
LONG_PREFIX: Final = "liqod-long-"
"""The same for names that are too long to be followed by home's; a digest follows."""
MAX_ENTRIES: Final = 10_000
"""Networks, exceptions and names of namespaces in the policies of one namespace at most: one object holds as many."""

_MAX_NAME: Final = 253
_WEIGHT: Final = 25
"""How many comparisons an entry weighs that is written; the bound is ``home_view.MAX_WORK``."""


@attrs.frozen
class Compiled:
    """The NetworkPolicies of a tenant's namespace here, and what of home's is closed.

    They are written in their order and removed in the reverse one: the floor is first and the default last, so that no
    pod is without any of them in between.
    """

    policies: tuple[Mapping[str, Any], ...]
    refused: tuple[ClosedField, ...]
    home: tuple[CheckedPolicy, ...]

    def isolated(self, labels: Mapping[str, str]) -> str:
        """Return the value of ``ISOLATED_LABEL`` for a pod with these labels at home; empty: it has no such label."""
        selecting = [one for one in self.home if matches(one.pods, labels)]
        ingress = any(one.ingress is not None for one in selecting)
        egress = any(one.egress is not None for one in selecting)
        return "both" if ingress and egress else "ingress" if ingress else "egress" if egress else ""

    def refused_of(self, labels: Mapping[str, str]) -> tuple[ClosedField, ...]:
        """Return what is closed for a pod with these labels at home though home may allow it."""
        selecting = {one.name for one in self.home if matches(one.pods, labels)}
        return tuple(one for one in self.refused if not one.policy or one.policy in selecting)


def compiled(specs: Mapping[str, Any], facts: HomeFacts, bounds: Bounds) -> Compiled:
    """Return the policies for a namespace of a tenant, from the specs of home's by their names. Never raises.

    They allow what both home and the bounds do. What cannot be said here, or goes beyond a bound, they do not allow:
    ``refused`` names it, as ``InvalidPolicy``, ``LabelNotCarried``, ``BlockSplitsPods``, ``BlockNotKnown``,
    ``TooManyPolicies``, ``TooManyRules``, ``TooManyPeers`` or ``TooManyPods``. Without policies of home the bounds stay
    as they are. Equal input in any order gives equal output, but for the order of rules where there are too many.
    """
    if not specs:
        return Compiled(() if bounds.egress is None else (bounds.egress,), (), ())
    home, refused = checked(specs, bounds.labels, bounds.withheld)
    if len(facts.pods) > MAX_PODS:
        message = f"home has more than {MAX_PODS} pods elsewhere, so that no rule names them by their labels"
        refused.append(ClosedField("", "", "TooManyPods", message))
        facts = attrs.evolve(facts, pods=())
    compiling = _Compiling(facts, bounds)
    made = [*_of_bounds(bounds), *(_policy(bounds, _name(one.name), compiling.spec(one)) for one in home)]
    return Compiled(tuple(sorted(made, key=_turn)), (*refused, *compiling.refused), tuple(home))


def _turn(policy: Mapping[str, Any]) -> tuple[bool, bool, str]:
    name = str(policy["metadata"]["name"])
    return name != FLOOR, name == NAME, name


def _of_bounds(bounds: Bounds) -> Iterator[dict[str, Any]]:
    if bounds.egress is not None:
        # NotIn holds for a pod without the label.
        term = {"key": ISOLATED_LABEL, "operator": "NotIn", "values": ["both", "egress"]}
        yield _policy(bounds, NAME, {**bounds.egress["spec"], "podSelector": {"matchExpressions": [term]}})
        yield _policy(bounds, FLOOR, {"podSelector": {}, "policyTypes": ["Egress"]})


def _policy(bounds: Bounds, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    made = tenant_object("networking.k8s.io/v1", "NetworkPolicy", name, bounds.namespace, bounds.tenant)
    return {**made, "spec": spec}


def _name(home: str) -> str:
    if home == REST:
        return CLOSED
    full = f"{PREFIX}{home}"
    return full if len(full) <= _MAX_NAME else f"{LONG_PREFIX}{hashlib.sha256(home.encode()).hexdigest()}"


class _Compiling:
    """Compiles the policies of a namespace one after the other; they share one allowance of work and networks."""

    def __init__(self, facts: HomeFacts, bounds: Bounds) -> None:
        self.refused: list[ClosedField] = []
        self._tenant = bounds.tenant
        self._view = HomeView(facts)
        self._egress: Sequence[OpenedRule] = [EVERYTHING]
        if bounds.egress is not None:
            self._egress = [OpenedRule.of(one, bounds.tenant) for one in bounds.egress["spec"]["egress"]]
        self._room = MAX_ENTRIES

    def spec(self, policy: CheckedPolicy) -> dict[str, Any]:
        """Return the spec of one policy."""
        made: dict[str, Any] = {"podSelector": selector(policy.pods), "policyTypes": []}
        for direction, end, rules in (("ingress", "from", policy.ingress), ("egress", "to", policy.egress)):
            if rules is not None:
                made["policyTypes"].append(direction.capitalize())
                made[direction] = self._rules(policy.name, rules, direction, end)
        return made

    def _rules(self, policy: str, rules: Sequence[CheckedRule], direction: str, end: str) -> list[dict[str, Any]]:
        written = WrittenRules(self._tenant)
        for rule in rules:
            self.refused += [one.of(policy) for one in self._view.left_out(rule)]
            try:
                self._view.spend(1, rule.field)
                written.add(self._egress_of(rule) if direction == "egress" else self._ingress_of(rule))
            except UnsupportedField as refused:
                self.refused.append(refused.of(policy))
        made = written.rendered(end)
        entries = entries_in(made, end)
        if entries > self._room:
            message = f"it comes to {entries} networks and names, a namespace has {MAX_ENTRIES}: use wider networks"
            self.refused.append(ClosedField(policy, f"spec.{direction}", "TooManyPeers", message))
            return []
        self._room -= entries
        return made

    def _ingress_of(self, rule: CheckedRule) -> Iterator[tuple[RulePorts, Target]]:
        for ports, named in self._view.ingress(rule):
            yield from self._weighed(rule, EVERYTHING.meet(ports, named))

    def _egress_of(self, rule: CheckedRule) -> Iterator[tuple[RulePorts, Target]]:
        for ports, named in self._view.egress(rule):
            for opened in self._egress:
                yield from self._weighed(rule, opened.meet(ports, named))
        for ports, peers in self._view.stand_ins(rule):
            yield from ((ports, raw(one)) for one in peers)

    def _weighed(
        self, rule: CheckedRule, targets: Iterable[tuple[RulePorts, Target]]
    ) -> Iterator[tuple[RulePorts, Target]]:
        for ports, target in targets:
            self._view.spend(_WEIGHT * _entries(target), rule.field)
            yield ports, target


def _entries(target: Target) -> int:
    if isinstance(target, Block):
        return 1 + len(target.excepts)
    return 1 + len(target.namespaces or ()) if isinstance(target, Here) else 1
