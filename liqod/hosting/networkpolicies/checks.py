"""Checks home's NetworkPolicies: what is wrong or too much in one allows nothing, and its pods stay isolated. Pure.

Policies only allow, so that a rule which is left out closes; one without peers or ports would open, and is never made.

Sources: Kubernetes, pkg/apis/networking/validation (what an API server accepts) and pkg/apis/networking/v1/defaults.go
(protocol and policyTypes).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from liqod.hosting.networkpolicies.blocks import Block, block_of, contains
from liqod.hosting.networkpolicies.objects import (
    CheckedPeer,
    CheckedPolicy,
    CheckedRule,
    ClosedField,
    IPBlock,
    LabelSelector,
    PolicyEgressRule,
    PolicyIngressRule,
    PolicyPeer,
    PolicyPort,
    PolicySpec,
    Terms,
    UnsupportedField,
)
from liqod.hosting.networkpolicies.ports import LAST, PortName, Range, RulePorts, merged
from liqod.model.objects import label_selector
from liqod.model.objects.label_selector import LabelRequirement
from liqod.model.objects.portable_metadata import OUR_DOMAINS, is_allowed
from liqod.model.records.network import Network
from liqod.model.text import clean_text

MAX_POLICIES: Final = 100
"""Policies of one namespace at most."""
MAX_TERMS: Final = 2000
"""Rules, peers, ports, exceptions and terms of selectors of all policies of a namespace at most."""
REST: Final = ""
"""The name of the policy that isolates every pod instead of those that are not read."""

_CIDR: Final = re.compile(r"[0-9A-Fa-f.:]{2,45}/[0-9]{1,3}")
_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# IANA_SVC_NAME (RFC 6335): at most 15 characters, one letter at least, no two hyphens in a row.
_PORT_NAME: Final = re.compile(r"(?=.{1,15}\Z)(?=[0-9-]*[a-z])[a-z0-9]+(-[a-z0-9]+)*")

_SHOWN: Final = 80
_RULES: Final[Mapping[str, tuple[str, type[PolicyIngressRule | PolicyEgressRule]]]] = {
    "ingress": ("from", PolicyIngressRule),
    "egress": ("to", PolicyEgressRule),
}

T = TypeVar("T")


def checked(
    specs: Mapping[str, Any], labels: Sequence[str], withheld: frozenset[str] = frozenset()
) -> tuple[list[CheckedPolicy], list[ClosedField]]:
    """Return policies from their specs by name, in order of the names, and what was refused of them.

    ``labels``: those that pods have here as they have them at home, but for those ``withheld``.
    """
    found: list[CheckedPolicy] = []
    check = _Check(labels, withheld)
    unread: list[ClosedField] = []
    for name in sorted(specs):
        if len(found) == MAX_POLICIES:
            message = f"a namespace has more than {MAX_POLICIES} NetworkPolicies: merge some"
            unread.append(ClosedField(REST, "", "TooManyPolicies", message))
            break
        if _NAME.fullmatch(name):
            found.append(check.policy(name, specs[name]))
        elif not unread:
            message = f"{clean_text(name, _SHOWN)!r} is no name of a NetworkPolicy"
            unread.append(ClosedField(REST, "metadata.name", "InvalidPolicy", message))
    if unread:
        found.insert(0, CheckedPolicy(REST, frozenset(), (), ()))
    return found, [*unread, *check.refused]


class _Check:
    """Checks the parts of policies; they share one allowance of terms."""

    def __init__(self, labels: Sequence[str], withheld: frozenset[str]) -> None:
        self._labels = labels
        self._withheld = withheld
        self._left = MAX_TERMS
        self._policy = ""
        self.refused: list[ClosedField] = []

    def policy(self, name: str, spec: Any) -> CheckedPolicy:
        """Return a policy of which what is refused allows nothing."""
        self._policy = name
        try:
            read = _converted(spec, PolicySpec, "spec")
        except UnsupportedField as refused:
            self._note(refused)
            return CheckedPolicy(name, frozenset(), (), ())
        pods, is_exact = self._isolated(read.pod_selector)
        # Ingress is the default, and Egress only where there are rules for it (SetDefaults_NetworkPolicy).
        kinds = read.policy_types or (("Ingress", "Egress") if read.egress else ("Ingress",))
        ingress, egress = (read.ingress, read.egress) if is_exact else ((), ())
        return CheckedPolicy(
            name,
            pods,
            tuple(self._rules(ingress, "ingress")) if "Ingress" in kinds else None,
            tuple(self._rules(egress, "egress")) if "Egress" in kinds else None,
        )

    def _isolated(self, selector: Any) -> tuple[Terms, bool]:
        """Return the terms that hold here for the pods of a policy, or for more pods, and whether it is these alone."""
        field = "spec.podSelector"
        try:
            terms = self._terms(_converted(selector or {}, LabelSelector, field), field)
        except UnsupportedField as refused:
            self._note(refused)
            return frozenset(), False
        carried = frozenset(one for one in terms if self._is_carried(one))
        if carried != terms:
            self._note(_not_carried(terms - carried, field))
        return carried, carried == terms

    def _rules(self, rules: Sequence[Any] | None, direction: str) -> Iterator[CheckedRule]:
        end, shape = _RULES[direction]
        for index, raw in enumerate(rules or ()):
            field = f"spec.{direction}[{index}]"
            try:
                self._take(1, field)
                rule = self._rule(_converted(raw, shape, field), field, end)
            except UnsupportedField as refused:
                self._note(refused)
                if refused.reason == "TooManyRules":
                    return
                continue
            if rule is not None:
                yield rule

    def _rule(self, rule: PolicyIngressRule | PolicyEgressRule, field: str, end: str) -> CheckedRule | None:
        given = rule.peers or ()
        self._take(len(given) + len(rule.ports or ()), field)
        peers = [self._peer(one, f"{field}.{end}[{index}]") for index, one in enumerate(given)]
        ports = self._ports(rule.ports or (), field)
        left = tuple(one for one in peers if one is not None)
        # Nobody is left of peers whose exceptions are all they have; a rule without peers would be for everybody.
        return CheckedRule(field, left, ports) if left or not given else None

    def _peer(self, peer: PolicyPeer, field: str) -> CheckedPeer | None:
        if peer.ip_block is not None:
            if peer.pod_selector is not None or peer.namespace_selector is not None:
                raise _invalid(field, "an ipBlock stands alone; use another peer for the selector")
            block = self._block(peer.ip_block, f"{field}.ipBlock")
            return None if block is None else CheckedPeer(field, block=block)
        if peer.pod_selector is None and peer.namespace_selector is None:
            raise _invalid(field, "it needs a selector or an ipBlock")
        namespaces: Terms | None = None
        pods: Terms = frozenset()
        if peer.namespace_selector is not None:
            namespaces = self._terms(peer.namespace_selector, f"{field}.namespaceSelector")
        if peer.pod_selector is not None:
            pods = self._terms(peer.pod_selector, f"{field}.podSelector")
            missing = frozenset(one for one in pods if not self._is_carried(one))
            if missing:
                raise _not_carried(missing, f"{field}.podSelector")
        return CheckedPeer(field, namespaces, pods)

    def _block(self, block: IPBlock, field: str) -> Block | None:
        whole = _network(block.cidr, f"{field}.cidr")
        given = block.excepts or ()
        self._take(len(given), field)
        excepts = [_network(text, f"{field}.except[{index}]") for index, text in enumerate(given)]
        for index, one in enumerate(excepts):
            if one == whole or not contains(whole, one):
                raise _invalid(f"{field}.except[{index}]", f"{one} is not inside of {whole}")
        return block_of(whole, excepts)

    def _ports(self, ports: Sequence[PolicyPort], rule: str) -> RulePorts:
        ranges: list[Range] = []
        names: set[PortName] = set()
        for index, one in enumerate(ports):
            field, protocol = f"{rule}.ports[{index}]", one.protocol or "TCP"
            if isinstance(one.port, str):
                if not _PORT_NAME.fullmatch(one.port) or one.end_port is not None:
                    raise _invalid(field, f"{clean_text(one.port, _SHOWN)!r} is no name of a port, or has an endPort")
                names.add((protocol, one.port))
                continue
            first, last = (1, LAST) if one.port is None else (one.port, one.port)
            if one.end_port is not None:
                last = one.end_port if one.port is not None else 0
            if not 1 <= first <= last <= LAST:
                raise _invalid(field, f"port {one.port} with endPort {one.end_port}: they are 1 to {LAST}, in order")
            ranges.append((protocol, first, last))
        return RulePorts(merged(ranges), frozenset(names)) if ports else RulePorts()

    def _terms(self, selector: LabelSelector, field: str) -> Terms:
        equal, listed = selector.match_labels or {}, selector.match_expressions or ()
        self._take(len(equal) + sum(1 + len(one.values or ()) for one in listed), field)
        found = [LabelRequirement(key, True, frozenset((value,))) for key, value in equal.items()]
        for one in listed:
            has_values = one.operator in ("In", "NotIn")
            if has_values is not bool(one.values):
                raise _invalid(field, f"the operator {one.operator} goes {'with' if has_values else 'without'} values")
            wanted = one.operator in ("In", "Exists")
            found.append(LabelRequirement(one.key, wanted, frozenset(one.values or ()) if has_values else None))
        for term in found:
            for text in [term.key] if term.values is None else [f"{term.key} in ({value})" for value in term.values]:
                if not _reads_back(text, term):
                    raise _invalid(field, f"{clean_text(text, _SHOWN)!r} is no label")
        return frozenset(found)

    def _is_carried(self, term: LabelRequirement) -> bool:
        """Return whether pods have a label here as at home: ours are set here, others may stay behind."""
        if term.key.startswith(OUR_DOMAINS) or term.key in self._withheld:
            return False
        return is_allowed(term.key, self._labels)

    def _take(self, terms: int, field: str) -> None:
        if terms > self._left:
            self._left = 0
            message = f"the policies of a namespace have {MAX_TERMS} rules, peers, ports and terms at most: write fewer"
            raise UnsupportedField(field, "TooManyRules", message)
        self._left -= terms

    def _note(self, refused: UnsupportedField) -> None:
        self.refused.append(refused.of(self._policy))


def _converted(value: Any, shape: type[T], field: str) -> T:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise _invalid(field, clean_text(str(error), 200)) from None


def _network(text: str, field: str) -> Network:
    try:
        if _CIDR.fullmatch(text):
            found = ipaddress.ip_network(text, strict=False)
            if found.version == 4 or found.network_address.ipv4_mapped is None:
                return found
    except ValueError:
        pass
    raise _invalid(field, f"{clean_text(text, _SHOWN)!r} is no network such as 192.0.2.0/24")


def _reads_back(text: str, term: LabelRequirement) -> bool:
    """Return whether a text is a term for one value of a requirement, and no other one."""
    try:
        (found,) = label_selector.parse(text)
    except ValueError:
        return False
    values = None if found.values is None else next(iter(found.values))
    rest = text.removeprefix(term.key)
    return found.key == term.key and rest == ("" if values is None else f" in ({values})")


def _invalid(field: str, message: str) -> UnsupportedField:
    return UnsupportedField(field, "InvalidPolicy", message)


def _not_carried(terms: Terms, field: str) -> UnsupportedField:
    keys = ", ".join(sorted({one.key for one in terms}))
    message = f"pods do not have {keys} here as at home; use a plain label, or have it granted in [hosting] labels"
    return UnsupportedField(field, "LabelNotCarried", clean_text(message, 400))
