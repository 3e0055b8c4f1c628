"""This cluster's own networks, by settings and record."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.model.records.facts import (
    POD_NETWORKS,
    SERVICE_NETWORKS,
    ClusterFacts,
    ClusterFactsStatus,
    Fact,
    own_networks,
)


def facts(**values: list[str]) -> ClusterFacts:
    """Return a record with the networks of ``pods`` and ``services``."""
    names = {"pods": POD_NETWORKS, "services": SERVICE_NETWORKS}
    found = [Fact(name=names[kind], state="Known", values=texts) for kind, texts in values.items()]
    return ClusterFacts(status=ClusterFactsStatus(facts=found))


class OwnNetworksTests(SynchronousTestCase):
    """Settings count before what was found; what neither says is unknown, and nothing is guessed."""

    def test_table(self) -> None:
        """Record, setting of pods, setting of services; the networks, and the settings that are needed."""
        record = facts(pods=["10.48.0.0/16", "fd48::/64"], services=["10.96.0.0/12"])
        table = [
            (record, "", "", ["10.48.0.0/16", "fd48::/64", "10.96.0.0/12"], ()),
            (record, "10.1.0.0/16", "", ["10.1.0.0/16", "10.96.0.0/12"], ()),
            (record, "", "10.2.0.0/16", ["10.48.0.0/16", "fd48::/64", "10.2.0.0/16"], ()),
            (None, "10.1.0.0/16", "10.2.0.0/16", ["10.1.0.0/16", "10.2.0.0/16"], ()),
            (None, "", "", [], ("pod-cidrs", "service-cidrs")),
            (facts(services=["10.96.0.0/12"]), "", "", ["10.96.0.0/12"], ("pod-cidrs",)),
            (facts(pods=["10.48.0.0/16"]), "", "", ["10.48.0.0/16"], ("service-cidrs",)),
            (facts(pods=["no network"], services=["10.96.0.0/12"]), "", "", ["10.96.0.0/12"], ("pod-cidrs",)),
        ]
        for given, pods, services, networks, unknown in table:
            own = own_networks(given, [pods] if pods else [], [services] if services else [])
            self.assertEqual([str(one) for one in (*own.pods, *own.services)], networks)
            self.assertEqual(own.unknown, unknown)

    def test_awaited(self) -> None:
        """Before the facts are written it is not known yet what is known, unless the settings say it all."""
        empty = ClusterFacts()
        for given, pods, services, awaited in (
            (None, [], [], True),
            (empty, [], [], True),
            (empty, ["10.1.0.0/16"], [], True),
            (None, ["10.1.0.0/16"], ["10.2.0.0/16"], False),
            (facts(pods=["10.48.0.0/16"]), [], [], False),
            (facts(), [], [], True),
            (facts(pods=[], services=[]), [], [], False),
        ):
            self.assertEqual(own_networks(given, pods, services).is_awaited, awaited)
