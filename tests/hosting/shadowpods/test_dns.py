"""What a tenant's pod asks for names."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.shadowpods.dns import with_name_servers

SERVERS = ("10.96.0.21", "10.96.0.22")
SEARCHES = ["shop.svc.home.example", "svc.home.example", "home.example"]
NAME = st.from_regex(r"[a-z][a-z0-9.]{0,60}", fullmatch=True)


def named(spec: dict[str, Any]) -> dict[str, Any]:
    return with_name_servers(spec, SERVERS, "shop", "home.example")


class PolicyTests(SynchronousTestCase):
    def test_of_the_cluster(self) -> None:
        """A pod that asks the cluster's DNS at home asks the name service, as a pod of its namespace at home."""
        for policy in (None, "ClusterFirst", "ClusterFirstWithHostNet"):
            made = named({"dnsPolicy": policy, "hostname": "kept"})
            self.assertEqual((made["dnsPolicy"], made["hostname"]), ("None", "kept"))
            self.assertEqual(made["dnsConfig"]["nameservers"], list(SERVERS))
            self.assertEqual(made["dnsConfig"]["searches"], SEARCHES)
            self.assertIn({"name": "ndots", "value": "5"}, made["dnsConfig"]["options"])

    def test_of_others(self) -> None:
        """A pod that asks its node's servers, or those it names, does so here; without servers all do as before."""
        for policy in ("Default", "None"):
            spec = {"dnsPolicy": policy, "dnsConfig": {"nameservers": ["192.0.2.53"]}}
            self.assertEqual(named(spec), spec)
        self.assertEqual(with_name_servers({"a": 1}, (), "shop", "home.example"), {"a": 1})

    def test_own_configuration(self) -> None:
        """What the pod itself says is added, and overrides options, as a kubelet merges it."""
        own = {
            "nameservers": ["192.0.2.53", SERVERS[0], "192.0.2.54"],
            "searches": ["corp.example", SEARCHES[1]],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
        }
        made = named({"dnsConfig": own})["dnsConfig"]
        self.assertEqual(made["nameservers"], [*SERVERS, "192.0.2.53"])
        self.assertEqual(made["searches"], [*SEARCHES, "corp.example"])
        options = {one["name"]: one.get("value") for one in made["options"]}
        self.assertEqual(options, {"ndots": "2", "timeout": "2", "attempts": "2", "edns0": None})

    def test_wrong_types(self) -> None:
        """What is no configuration is refused by its path."""
        wrong: tuple[Any, ...] = ({"searches": "x"}, {"nameservers": [1]}, {"options": ["ndots"]}, [])
        for own in wrong:
            with self.assertRaisesRegex(ValueError, "spec.dnsConfig"):
                named({"dnsConfig": own})

    @given(st.lists(NAME, max_size=40), st.lists(NAME, max_size=5))
    def test_what_the_api_takes(self, searches: list[str], servers: list[str]) -> None:
        """However much a pod asks for, what is made has no more than the API server takes."""
        made = named({"dnsConfig": {"searches": searches, "nameservers": servers}})["dnsConfig"]
        self.assertLessEqual(len(made["nameservers"]), 3)
        self.assertLessEqual(len(made["searches"]), 32)
        self.assertLessEqual(len(" ".join(made["searches"])), 2048)
        self.assertEqual(made["searches"][:3], SEARCHES)
