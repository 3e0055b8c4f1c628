"""What ``check`` says of networks for peers that hold servers of this host."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.findings import Finding
from liqod.cli.network import plan
from liqod.cli.network.pools import TIME_SERVER, Need, Unknown, api_servers, judge_pools, time_servers
from liqod.config.schema import NetworkSettings, Settings
from liqod.fabric.agent.kernel.host import KernelError, ProgramOutput
from liqod.kube.errors import Forbidden, KubeError
from liqod.kube.resources import CLUSTERFACTS, NODES, Resource
from liqod.model.records.facts import API_SERVER_ADDRESSES, ClusterFacts

TIME = Need("time server", ipaddress.ip_network("172.16.0.5"))


class PoolsTests(SynchronousTestCase):
    def test_table(self) -> None:
        """A server inside a pool is a warning that names it, unless something keeps peers away from it."""
        outside = Need("time server", ipaddress.ip_network("203.0.113.5"))
        near = [ipaddress.ip_network("172.16.0.0/24")]
        pools = ["172.16.0.0/12"]
        for settings, needs, known, expected in (
            (NetworkSettings(pools=pools), [TIME], [], ["warning"]),
            (NetworkSettings(pools=pools), [TIME, TIME], [], ["warning"]),
            (NetworkSettings(pools=pools), [outside], [], ["good"]),
            (NetworkSettings(pools=pools), [], [], ["good"]),
            (NetworkSettings(pools=pools), [TIME], near, ["good"]),
            (NetworkSettings(pools=pools, reserved=["172.16.0.5/32"]), [TIME], [], ["good"]),
            (NetworkSettings(pools=["10.64.0.0/10"], accept=pools), [TIME], [], ["warning"]),
            (NetworkSettings(pools=["10.64.0.0/10"]), [TIME], [], ["good"]),
            (NetworkSettings(pools=["fd00::/8"]), [TIME, *api_servers(["fd00::1", "no address"])], [], ["warning"]),
        ):
            found = judge_pools(settings, needs, known)
            self.assertEqual([one.verdict for one in found], expected, (settings, needs))
        (warned,) = judge_pools(NetworkSettings(pools=pools), [TIME], [])
        self.assertIn("172.16.0.5 lies in 172.16.0.0/12", warned.text)
        self.assertIn('"172.16.0.5/32" to reserved', warned.hint)

    def test_unknown(self) -> None:
        """What could not be looked at is a warning of its own; what is well names only what was looked at."""
        settings = NetworkSettings(pools=["172.16.0.0/12"])
        unknown = [Unknown("the routes of this host: no ip", "install it")]
        self.assertEqual([one.verdict for one in judge_pools(settings, [], [], unknown)], ["warning"])
        warned, beside = judge_pools(settings, [TIME], [], unknown)
        self.assertIn("172.16.0.5 lies in", warned.text)
        self.assertIn("is not known: the routes of this host: no ip", beside.text)
        self.assertEqual(beside.hint, "install it")
        (well,) = judge_pools(settings, [], [], kinds=[TIME_SERVER])
        self.assertNotIn("API server", well.text)

    def test_time_servers(self) -> None:
        """Servers are found in the files of timesyncd, chrony and ntpd; names and comments are none."""
        for text, expected in (
            ("[Time]\nNTP=172.16.0.5 time.example.com\n#FallbackNTP=172.16.0.6\nFallbackNTP=fd00::7\n", 2),
            ("# server 172.16.0.5\nserver 172.16.0.5 iburst\npool time.example.com\npeer 172.16.0.6\n", 2),
            ("server 127.0.0.1\nserver\nrestrict 172.16.0.5\n", 0),
            ("", 0),
        ):
            self.assertEqual(len(time_servers(text)), expected, text)


class Host:
    """A host with one route; ``fails`` says how the programs fail there, ``code`` with which exit code."""

    def __init__(self, fails: str = "", code: int = 0) -> None:
        self.fails, self.code = fails, code

    async def run(self, argv: Sequence[str], stdin: str = "") -> ProgramOutput:
        """Show the routes, or fail."""
        if self.fails and not self.code:
            raise KernelError(self.fails)
        return ProgramOutput(self.code, json.dumps([{"dst": "172.16.0.0/24", "dev": "eth0"}]), self.fails)


class Server:
    """An API server with the facts of its cluster; ``refuses`` is what it says to who lists nodes."""

    config = SimpleNamespace(server="https://192.0.2.1:6443")

    def __init__(self, addresses: Sequence[str] = (), refuses: KubeError | None = None) -> None:
        self.addresses, self.refuses = addresses, refuses

    async def list(self, resource: Resource, **_: Any) -> Any:
        """Return the facts if there are any, and that there are no nodes, or refuse."""
        if resource == NODES and self.refuses is not None:
            raise self.refuses
        fact = {"name": API_SERVER_ADDRESSES, "state": "Known", "values": [*self.addresses]}
        body = {"metadata": {"name": "cluster"}, "status": {"facts": [fact]}}
        has_facts = resource == CLUSTERFACTS and self.addresses
        return SimpleNamespace(items=[msgspec.convert(body, ClusterFacts)] if has_facts else [])


class LookTests(SynchronousTestCase):
    """What is looked at on the host and in the cluster."""

    def setUp(self) -> None:
        """Have one file with a time server in a network that the host has a route to."""
        self.file = Path(self.mktemp())
        self.file.write_text("server 172.16.0.5 iburst\n")
        self.patch(plan, "TIME_FILES", (str(self.file), "/nonexistent/chrony.conf"))

    def found(self, host: Host, server: Server, *, pre: bool = False) -> list[Finding]:
        """Return the findings."""
        settings = Settings(network=NetworkSettings(pools=["172.16.0.0/12"]))
        session: Any = SimpleNamespace(client=server, settings=settings)
        return self.successResultOf(Deferred.fromCoroutine(plan.pool_findings(session, host, pre=pre)))

    def test_all_is_known(self) -> None:
        """Where everything could be looked at, nothing is warned of."""
        self.assertEqual([one.verdict for one in self.found(Host(), Server(["192.0.2.1"]))], ["good"])

    def test_not_known(self) -> None:
        """Where something could not be looked at that is said with its reason, and nothing is called well."""
        forbidden = Forbidden(403, "Forbidden", "nodes is forbidden")
        known = Server(["192.0.2.1"])
        for host, server, expected in (
            (Host("the program ip is not installed"), known, "the routes of this host: the program ip is not"),
            (Host("Dump terminated", code=1), known, "the routes of this host: ip -4 -j route show table all failed"),
            (Host(), Server(["192.0.2.1"], forbidden), "the addresses of the nodes: nodes is forbidden"),
            (Host(), Server(), "where the API servers are"),
        ):
            with self.subTest(expected=expected):
                found = self.found(host, server)
                self.assertNotIn("good", [one.verdict for one in found])
                self.assertEqual(len([one for one in found if f"is not known: {expected}" in one.text]), 1, found)
                self.assertTrue(all(one.hint for one in found))

    def test_unreadable_file(self) -> None:
        """A file that is there and cannot be read is not one without servers."""
        self.file.unlink()
        self.file.mkdir()
        (found,) = self.found(Host(), Server(["192.0.2.1"]))
        self.assertIn(f"is not known: the time servers in {self.file}", found.text)

    def test_before_the_daemon(self) -> None:
        """Before there is a daemon its facts are not missed, and nothing is said of API servers."""
        (found,) = self.found(Host(), Server(), pre=True)
        self.assertEqual(found.verdict, "good")
        self.assertNotIn("API server", found.text)
