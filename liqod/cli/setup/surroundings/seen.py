"""What was seen of the cluster that liqod comes to, and what its parts are called. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from liqod.facts.observed import ObjectSelector, ObservedCluster, arguments_of
from liqod.kube.resources import Resource
from liqod.model.records.facts import DISTRIBUTION, PLUGIN, Fact, fact_of

PRIVILEGED: Final = "privileged"
"""The Pod Security level that admits every pod."""
FELIX: Final = ObjectSelector(
    Resource("crd.projectcalico.org", "v1", "felixconfigurations", "FelixConfiguration", False), "default"
)
"""Where Calico has the settings of its agents; only `check` reads it, as an administrator."""


@attrs.frozen(kw_only=True)
class Surroundings:
    """What was seen: facts with their sources, the level of liqod's namespace, and whether rights count.

    ``level`` None: the namespace is not there yet, or may not be read; "" it says nothing. ``is_open``: the API server
    authorizes everybody for everything; None where that could not be found out.
    """

    facts: Sequence[Fact]
    seen: ObservedCluster = attrs.field(factory=ObservedCluster)
    level: str | None = None
    is_open: bool | None = None

    @property
    def names(self) -> set[str]:
        """The distribution, the network plugins and the cloud, as far as they are known."""
        named = {*fact_of(self.facts, DISTRIBUTION).values, *fact_of(self.facts, PLUGIN).values}
        return named | ({f"cloud {self.cloud}"} if self.cloud else set())

    @property
    def cloud(self) -> str:
        """The provider of the nodes' machines, as its controllers write it to them; empty where none does."""
        for node in self.seen.nodes:
            name, _, rest = node.spec.provider_id.partition("://")
            if rest:
                return name
        return ""

    def argument(self, name: str) -> str:
        """Return an option of a server of k3s or RKE2; empty where none shows it."""
        return (arguments_of(self.seen.nodes) or {}).get(name, "")
