"""The rules of a policy as they are written: peers by their ports, each once and in order. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from liqod.hosting.networkpolicies.blocks import Block, collapsed
from liqod.hosting.networkpolicies.home_view import Here
from liqod.hosting.networkpolicies.objects import Terms
from liqod.hosting.networkpolicies.opened import Target, raw
from liqod.hosting.networkpolicies.ports import RulePorts
from liqod.model.names import REMOTE_CLUSTER_LABEL


class WrittenRules:
    """The rules of one policy in one direction, for a tenant."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._found: dict[RulePorts, set[Target]] = {}

    def add(self, targets: Iterable[tuple[RulePorts, Target]]) -> None:
        """Add what a rule allows: all of it, or nothing where the iterable raises."""
        for ports, target in list(targets):
            self._found.setdefault(ports, set()).add(target)

    def rendered(self, end: str) -> list[dict[str, Any]]:
        """Return the rules in order; each has peers, since one without them would allow everybody."""
        made = []
        for ports, targets in self._found.items():
            plain = [one.network for one in targets if isinstance(one, Block) and not one.excepts]
            blocks = [Block(one) for one in collapsed(plain)]
            blocks += [one for one in targets if isinstance(one, Block) and one.excepts]
            texts = {raw(one.rendered()) for one in blocks}
            texts |= {raw(self._pods(one)) for one in targets if isinstance(one, Here)}
            texts |= {one for one in targets if isinstance(one, str)}
            rule: dict[str, Any] = {end: [json.loads(one) for one in sorted(texts)]}
            if (listed := ports.rendered()) is not None:
                rule["ports"] = listed
            made.append(rule)
        return sorted(made, key=raw)

    def _pods(self, here: Here) -> dict[str, Any]:
        namespaces: dict[str, Any] = {"matchLabels": {REMOTE_CLUSTER_LABEL: self._tenant}}
        if here.namespaces is not None:
            # The API server itself sets this label on every namespace.
            term = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(here.namespaces)}
            namespaces["matchExpressions"] = [term]
        return {"namespaceSelector": namespaces} | ({"podSelector": selector(here.pods)} if here.pods else {})


def entries_in(rules: Sequence[Mapping[str, Any]], end: str) -> int:
    """Return how many networks, exceptions and names of namespaces are in rules."""
    count = 0
    for peer in (one for rule in rules for one in rule[end]):
        terms = peer.get("namespaceSelector", {}).get("matchExpressions", ())
        count += 1 + len(peer.get("ipBlock", {}).get("except", ())) + sum(len(one.get("values", ())) for one in terms)
    return count


def selector(terms: Terms) -> dict[str, Any]:
    """Return terms as a label selector."""
    return {"matchExpressions": sorted((term.expression for term in terms), key=raw)} if terms else {}
