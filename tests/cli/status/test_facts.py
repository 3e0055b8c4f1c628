"""What the commands say of the facts that the daemon found out."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.status.own_facts import fact_findings
from liqod.identity.pairing import read_token
from liqod.kube.resources import CLUSTERFACTS
from liqod.model.objects.meta import to_dict
from liqod.model.records.facts import (
    API_SERVER,
    API_SERVER_NAMES,
    DAEMON_ADDRESSES,
    DOMAIN,
    POD_NETWORKS,
    SERVICE_NETWORKS,
    ClusterFacts,
    ClusterFactsStatus,
    Fact,
)
from tests.cli.test_every_command import EveryCase

URL = "https://api.example.com:6443"
KNOWN = {
    POD_NETWORKS: ["10.42.0.0/16"],
    SERVICE_NETWORKS: ["10.43.0.0/16"],
    API_SERVER: [URL],
    API_SERVER_NAMES: ["*.example.com", "192.0.2.1"],
    DAEMON_ADDRESSES: ["192.0.2.7"],
    DOMAIN: ["cluster.local"],
}


def record(**facts: list[str]) -> ClusterFacts:
    """Return a record of what is known, some of it otherwise."""
    values = {**KNOWN, **facts}
    return ClusterFacts(
        status=ClusterFactsStatus(
            facts=[
                Fact(name=name, state="Known" if known else "Unknown", values=known, message="" if known else "set it")
                for name, known in values.items()
            ]
        )
    )


class FindingsTests(SynchronousTestCase):
    def test_table(self) -> None:
        """What is needed and unknown is a warning with the setting, and so is a certificate or domain of others."""
        for facts, url, expected in (
            (None, URL, []),
            (record(), URL, ["good"]),
            (record(), "https://192.0.2.1", ["good"]),
            (record(), "https://a.api.example.com", ["warning"]),
            (record(), "https://192.0.2.2", ["warning"]),
            (record(APIServerNames=[]), URL, ["good"]),
            (record(PodNetworks=[]), URL, ["warning"]),
            (record(ClusterDomain=[]), URL, ["good"]),
            (record(ClusterDomain=["home.example"]), URL, ["warning"]),
            (record(PodNetworks=[], DaemonAddresses=[]), "https://192.0.2.2", ["warning"] * 3),
        ):
            found = fact_findings(facts, url, "cluster.local")
            self.assertEqual([one.verdict for one in found], expected, (facts, url))
            self.assertTrue(all(one.hint for one in found if one.verdict != "good"))


class RecordTests(EveryCase):
    """Commands against a cluster whose daemon wrote its facts."""

    async def facts(self, known: ClusterFacts) -> None:
        """Have a daemon that wrote these facts."""
        await self.client.create(CLUSTERFACTS, {"metadata": {"name": "cluster"}})
        await self.client.patch(CLUSTERFACTS, "cluster", {"status": to_dict(known.status)}, subresource="status")

    async def test_the_daemon_knows(self) -> None:
        """Tokens and DNS records name the daemon's host, not the one on which the command runs."""
        await self.facts(record())
        out, err, _ = await self.outcome("token", "create", "-o", "json")
        self.assertEqual(read_token(json.loads(out)[0]["token"]).addresses, ["192.0.2.7:5872"], err)
        out, _, _ = await self.outcome("dns-records", "example.com")
        self.assertIn(" IN A 192.0.2.7", out)
        out, _, _ = await self.outcome("facts", "-o", "json")
        self.assertEqual({one["name"]: one["values"] for one in json.loads(out)}, KNOWN)

    async def test_the_daemon_does_not_know(self) -> None:
        """An address that nobody knows is no guess but an error that says what to set."""
        await self.facts(record(DaemonAddresses=[]))
        _, err, status = await self.outcome("token", "create")
        self.assertEqual(status, 1)
        self.assertIn("LQ1001", err)
        self.assertIn("advertise-addresses under [peering]", " ".join(err.split()))
