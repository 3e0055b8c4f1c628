"""What ``check`` says of networks for peers that hold servers of this host."""

from __future__ import annotations

import ipaddress

from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.network.pools import Need, api_servers, judge_pools, time_servers
from liqod.config.schema import NetworkSettings

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

    def test_time_servers(self) -> None:
        """Servers are found in the files of timesyncd, chrony and ntpd; names and comments are none."""
        for text, expected in (
            ("[Time]\nNTP=172.16.0.5 time.example.com\n#FallbackNTP=172.16.0.6\nFallbackNTP=fd00::7\n", 2),
            ("# server 172.16.0.5\nserver 172.16.0.5 iburst\npool time.example.com\npeer 172.16.0.6\n", 2),
            ("server 127.0.0.1\nserver\nrestrict 172.16.0.5\n", 0),
            ("", 0),
        ):
            self.assertEqual(len(time_servers(text)), expected, text)
