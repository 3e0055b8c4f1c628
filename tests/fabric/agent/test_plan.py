"""Plans: the exact words for ip, wg and nft, and none at all where nothing has to be done."""

from __future__ import annotations

import ipaddress
from typing import Any

import attrs
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.kernel import routes, wireguard
from liqod.fabric.agent.kernel.host_facts import name_servers
from liqod.fabric.agent.kernel.model import (
    DesiredKernel,
    NetworkInterface,
    NftablesTable,
    ObservedKernel,
    Route,
    TunnelPeer,
    WireGuardDevice,
)
from liqod.fabric.agent.kernel.plan import outline, plan, removal, show
from liqod.fabric.agent.kernel.rules import conntrack, nftables
from liqod.fabric.agent.kernel.rules.gateway_rules import gateway_sets
from liqod.fabric.state.network import Link, Netmap
from liqod.model.ids import ClusterID
from liqod.model.records.network import Network

KEY = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
OWN_KEY = "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw="
NOW = 1_800_000_000.0


def net(text: str) -> Network:
    return ipaddress.ip_network(text)


LINK = Link(
    peer=ClusterID("milan"),
    public_key=KEY,
    endpoint="192.0.2.7:5871",
    remote=(net("10.72.0.0/16"), net("10.73.0.0/20")),
    local=(Netmap(net("10.201.0.0/16"), net("10.71.0.0/16")),),
    gateway=Netmap(net("10.70.0.1/32"), net("10.74.0.1/32")),
    mtu=1420,
)
DESIRED = DesiredKernel(
    device="liqod",
    create=("ip", "link", "add", "dev", "liqod", "type", "wireguard"),
    listen_port=5871,
    probe_port=5872,
    public_key=OWN_KEY,
    private_key="secret",
    mtu=1420,
    addresses=(net("10.70.0.1/32"),),
    links=(LINK,),
)
FROM_NOTHING = f"""\
# ip link add dev liqod type wireguard

# wg set liqod private-key /dev/stdin
(a private key)

# wg set liqod listen-port 5871

# ip -batch -
address add 10.70.0.1/32 dev liqod
link set dev liqod addrgenmode none
link set dev liqod mtu 1420
link set dev liqod up

# wg addconf liqod /dev/stdin
[Peer]
PublicKey = {KEY}
Endpoint = 192.0.2.7:5871
AllowedIPs = 10.72.0.0/16, 10.73.0.0/20
PersistentKeepalive = 10

# nft -f -
table inet liqod
delete table inet liqod
table inet liqod {{
	chain guard {{
		type filter hook prerouting priority dstnat - 20; policy accept;
		iifname "liqod" ip saddr {{ 10.72.0.0/16, 10.73.0.0/20 }} ip daddr {{ 10.71.0.0/16, 10.74.0.1/32 }} accept
		iifname "liqod" drop
	}}
	chain to_pods {{
		type nat hook prerouting priority dstnat - 10; policy accept;
		iifname "liqod" ip saddr {{ 10.72.0.0/16, 10.73.0.0/20 }} ip daddr 10.71.0.0/16 dnat ip prefix to 10.201.0.0/16
		iifname "liqod" ip saddr {{ 10.72.0.0/16, 10.73.0.0/20 }} ip daddr 10.74.0.1 dnat ip to 10.70.0.1
	}}
	chain input {{
		type filter hook input priority filter; policy accept;
		iifname "liqod" ct state established,related accept
		iifname "liqod" udp dport 5872 accept
		iifname "liqod" icmp type echo-request accept
		iifname "liqod" icmpv6 type echo-request accept
		iifname "liqod" drop
	}}
	chain forward {{
		type filter hook forward priority filter; policy accept;
		oifname "liqod" tcp flags syn / syn,rst tcp option maxseg size set rt mtu
		iifname "liqod" tcp flags syn / syn,rst tcp option maxseg size set rt mtu
		iifname "liqod" oifname "liqod" drop
	}}
	chain from_pods {{
		type nat hook postrouting priority srcnat - 10; policy accept;
		oifname "liqod" ip daddr {{ 10.72.0.0/16, 10.73.0.0/20 }} ip saddr 10.201.0.0/16 snat ip prefix to 10.71.0.0/16
		oifname "liqod" ip daddr {{ 10.72.0.0/16, 10.73.0.0/20 }} snat ip to 10.74.0.1
	}}
	chain {{mark}} {{
	}}
}}

# ip -4 -batch -
rule add pref 18952 lookup 18952 protocol kernel
route replace 10.72.0.0/16 dev liqod table 18952 src 10.70.0.1
route replace 10.73.0.0/20 dev liqod table 18952 src 10.70.0.1

# conntrack -D -f ipv4 --orig-src 10.72.0.0/16

# conntrack -D -f ipv4 --orig-dst 10.72.0.0/16

# conntrack -D -f ipv4 --orig-src 10.73.0.0/20

# conntrack -D -f ipv4 --orig-dst 10.73.0.0/20

# nft -f -
add chain inet liqod SETTLED
""".replace("{mark}", "MARK")


def mark(desired: DesiredKernel) -> str:
    """Return the mark in a rendered table."""
    return next(line.split()[1] for line in nftables.render(desired).splitlines() if "chain plan_" in line)


def count(desired: DesiredKernel) -> int:
    """Return how many rules a rendered table has."""
    return sum(line.startswith(("\t\tiifname", "\t\toifname")) for line in nftables.render(desired).splitlines())


def observed_after(
    desired: DesiredKernel = DESIRED, *, endpoint: str = "192.0.2.7:5871", handshake: float = NOW
) -> ObservedKernel:
    """Return what there is after a plan was applied."""
    peers = {
        link.public_key: TunnelPeer(endpoint, frozenset(link.remote), handshake_at=handshake) for link in desired.links
    }
    sets = {
        line.split()[1]: frozenset[str]() for line in nftables.render(desired).splitlines() if line.startswith("\tset ")
    }
    return ObservedKernel(
        device=NetworkInterface(desired.mtu, True, frozenset(desired.addresses), "wireguard"),
        tunnel=WireGuardDevice(desired.public_key, desired.listen_port, peers),
        policies=frozenset({(4, 18952)}),
        routes=routes.wanted_routes(desired),
        rules=NftablesTable(mark(desired), count(desired), sets, frozenset(map(conntrack.flushed_mark, desired.links))),
    )


class PlanTests(SynchronousTestCase):
    """From what is wanted and what is seen to the commands."""

    def test_from_nothing(self) -> None:
        """A bare host gets the device, the peer, the rules and last the routes; the key is not shown."""
        text = show(plan(DESIRED, ObservedKernel(), NOW))
        self.assertEqual(
            text, FROM_NOTHING.replace("MARK", mark(DESIRED)).replace("SETTLED", conntrack.flushed_mark(LINK))
        )
        self.assertNotIn("secret", text)

    def test_in_one_line(self) -> None:
        """The line of the log says what is changed, without the key, and is never longer than its limit."""
        steps = plan(DESIRED, ObservedKernel(), NOW)
        line = outline(steps, 100_000)
        self.assertTrue(line.startswith(f"{' '.join(steps[0].argv)}; wg set liqod private-key /dev/stdin; "), line)
        self.assertIn("; ip: rule add pref", line)
        self.assertNotIn("secret", line)
        self.assertNotIn("\n", line)
        self.assertEqual(len(outline(steps, 40)), 40)

    def test_nothing_to_do(self) -> None:
        """A host that is as desired is left alone."""
        self.assertEqual(plan(DESIRED, observed_after(), NOW), ())

    def test_a_roamed_endpoint_is_not_overwritten(self) -> None:
        """What the kernel learned from the peer's packets stays; when the peer has fallen silent it is called again."""
        self.assertEqual(plan(DESIRED, observed_after(endpoint="198.51.100.9:40000"), NOW), ())
        text = show(plan(DESIRED, observed_after(endpoint="198.51.100.9:40000", handshake=NOW - 600), NOW))
        self.assertIn("Endpoint = 192.0.2.7:5871", text)
        more = attrs.evolve(LINK, remote=(*LINK.remote, net("10.90.0.0/16")))
        text = show(plan(attrs.evolve(DESIRED, links=(more,)), observed_after(endpoint="198.51.100.9:40000"), NOW))
        self.assertIn("AllowedIPs = 10.72.0.0/16, 10.73.0.0/20, 10.90.0.0/16", text)
        self.assertNotIn("Endpoint", text)

    def test_a_new_peer_does_not_mention_the_others(self) -> None:
        """Only the new peer is in the words for wg; the others' flows are not touched."""
        other = attrs.evolve(LINK, peer=ClusterID("paris"), public_key=OWN_KEY, remote=(net("10.80.0.0/16"),))
        text = show(plan(attrs.evolve(DESIRED, links=(LINK, other)), observed_after(), NOW))
        self.assertEqual(text.count("[Peer]"), 1)
        self.assertNotIn(f"PublicKey = {KEY}", text)
        self.assertNotIn("route replace 10.72", text)
        self.assertIn("--orig-dst 10.80.0.0/16", text)
        self.assertNotIn("--orig-dst 10.72", text)
        self.assertNotIn("--orig-src 10.72", text)

    def test_what_is_tracked_is_forgotten_when_translation_changes_only(self) -> None:
        """It comes after the routes, for networks that are new or read otherwise; keys, paths and pods do not count."""
        seen = (Netmap(net("10.201.0.0/16"), net("10.171.0.0/16")),)
        for change, forgets in (
            ({"remote": (net("10.90.0.0/16"), net("10.73.0.0/20"))}, True),
            ({"local": seen}, True),
            ({"gateway": Netmap(net("10.70.0.1/32"), net("10.174.0.1/32"))}, True),
            ({"public_key": OWN_KEY}, False),
            ({"mtu": 1300}, False),
            ({"endpoint": "198.51.100.9:5871"}, False),
            ({"pods": frozenset({"10.201.0.5"})}, False),
        ):
            changed: dict[str, Any] = dict(change)
            steps = plan(attrs.evolve(DESIRED, links=(attrs.evolve(LINK, **changed),)), observed_after(), NOW)
            words = [step.argv[0] for step in steps]
            self.assertEqual("conntrack" in words, forgets, changed)
            if forgets:
                self.assertEqual(words[-5:], ["conntrack"] * 4 + ["nft"])
            else:
                self.assertNotIn("add chain", show(steps))

    def test_a_replaced_table_keeps_the_marks_of_present_links(self) -> None:
        """A peer that came is done with once; the mark of one that went goes, so that its return is a new beginning."""
        other = attrs.evolve(LINK, peer=ClusterID("paris"), public_key=OWN_KEY, remote=(net("10.80.0.0/16"),))
        marks = {conntrack.flushed_mark(LINK), conntrack.flushed_mark(other)}
        self.assertEqual(len(marks), 2)
        script = nftables.render(DESIRED, marks)
        self.assertIn(f"\tchain {conntrack.flushed_mark(LINK)} {{\n\t}}\n", script)
        self.assertNotIn(conntrack.flushed_mark(other), script)

    def test_a_removed_peer_loses_its_route_before_its_tunnel(self) -> None:
        """The route goes first, then the rules, then the peer itself."""
        steps = plan(attrs.evolve(DESIRED, links=()), observed_after(), NOW)
        words = [step.argv[0] + (" remove" if "remove" in step.argv else "") for step in steps]
        self.assertEqual(words, ["ip", "nft", "wg remove"])
        self.assertIn("rule del pref 18952 lookup 18952", steps[0].stdin)

    def test_a_changed_key_is_one_peer_instead_of_another(self) -> None:
        """The new key takes the networks over before the old one is removed."""
        turned = attrs.evolve(LINK, public_key=OWN_KEY)
        steps = plan(attrs.evolve(DESIRED, links=(turned,)), observed_after(), NOW)
        self.assertEqual([step.argv[1] for step in steps], ["addconf", "set"])
        self.assertEqual(steps[-1].argv[-2:], (KEY, "remove"))

    def test_a_shorter_path_is_a_routes_mtu(self) -> None:
        """A path that carries less than the device does is set on the routes in the kernel to that peer."""
        steps = plan(attrs.evolve(DESIRED, links=(attrs.evolve(LINK, mtu=1380),)), observed_after(), NOW)
        self.assertIn("route replace 10.72.0.0/16 dev liqod table 18952 src 10.70.0.1 mtu lock 1380", steps[-1].stdin)

    def test_pods_come_and_go_by_elements(self) -> None:
        """With the closed policy a new pod is one element of a set, not a new table."""
        closed = attrs.evolve(DESIRED, links=(attrs.evolve(LINK, pods=frozenset()),))
        more = attrs.evolve(DESIRED, links=(attrs.evolve(LINK, pods=frozenset({"10.201.0.5"})),))
        (step,) = plan(more, observed_after(closed), NOW)
        self.assertRegex(step.stdin, r"^add element inet liqod pods_[0-9a-f]{64}_4 \{ 10\.201\.0\.5 \}\n$")

    def test_the_closed_policy_lets_a_peers_own_pods_pass_alone(self) -> None:
        """Either way: what is of no connection of the peer's set of pods is dropped, and only after these passed."""
        closed = attrs.evolve(DESIRED, links=(attrs.evolve(LINK, pods=frozenset({"10.201.0.5"})),))
        chain = nftables.render(closed).split("chain forward {")[1].split("}\n\tchain")[0]
        for way, theirs, ours in (("iif", "saddr", "daddr"), ("oif", "daddr", "saddr")):
            peer = rf'{way}name "liqod" ip {theirs} \{{ 10\.72\.0\.0/16, 10\.73\.0\.0/20 \}}'
            self.assertRegex(chain, rf"(?s){peer} ip {ours} @pods_[0-9a-f]{{64}}_4 accept\n.*{peer} drop\n")
        accepted = [
            line.strip() for line in chain.splitlines() if line.endswith("accept") and "established" not in line
        ]
        # The others are our own pods there: pods of this cluster like all others.
        for line, own in zip(accepted[2:], ('iifname "liqod" ip saddr', 'oifname "liqod" ip daddr'), strict=True):
            self.assertRegex(line, rf"^{own} @offloaded_[0-9a-f]{{64}}_4 accept$")
        self.assertNotIn("@pods_", nftables.render(DESIRED))

    def test_the_number_of_rules_does_not_depend_on_the_host(self) -> None:
        """Three peers have one policy rule and one route for each of their networks."""
        links = tuple(
            attrs.evolve(LINK, peer=ClusterID(f"p{n}"), public_key=f"{n}" * 44, remote=(net(f"10.{n}.0.0/16"),))
            for n in (1, 2, 3)
        )
        text = show(plan(attrs.evolve(DESIRED, links=links), ObservedKernel(), NOW))
        self.assertEqual((text.count("rule add"), text.count("route replace")), (1, 3))

    def test_removal_leaves_nothing(self) -> None:
        """Every kind of thing that was made is removed, and nothing else is named."""
        text = show(removal("liqod", observed_after()))
        self.assertEqual(
            text,
            "# ip -4 -batch -\n"
            "route del 10.73.0.0/20 table 18952\nroute del 10.72.0.0/16 table 18952\n"
            "rule del pref 18952 lookup 18952\n\n"
            "# nft -f -\ndelete table inet liqod\n\n"
            "# ip link del dev liqod\n",
        )
        self.assertEqual(removal("liqod", ObservedKernel()), ())


class TranslationTests(SynchronousTestCase):
    """What has another address at the peer than here."""

    def test_what_has_one_address_is_not_translated(self) -> None:
        """Towards a gateway and networks that the peer sees as they are no packet is changed."""
        seen, ours = net("10.74.0.1/32"), net("10.70.0.1/32")
        same = (Netmap(net("10.71.0.0/16"), net("10.71.0.0/16")),)
        for gateway, translated in ((Netmap(ours, seen), True), (Netmap(seen, seen), False)):
            desired = attrs.evolve(DESIRED, links=(attrs.evolve(LINK, local=same, gateway=gateway),))
            self.assertEqual("dnat ip" in nftables.render(desired), translated)


class ParsingTests(SynchronousTestCase):
    """What the programs say."""

    def test_wg_dump(self) -> None:
        """The device and its peers are read, with and without endpoint, networks and handshake."""
        dump = (
            f"PRIVATE\t{OWN_KEY}\t5871\toff\n"
            f"{KEY}\t(none)\t192.0.2.7:5871\t10.72.0.0/16,10.73.0.0/20\t1800000000\t148\t92\t10\n"
            f"{OWN_KEY}\t(none)\t(none)\t(none)\t0\t0\t0\toff\n"
        )
        tunnel = wireguard.parse_dump(dump)
        assert tunnel is not None
        self.assertEqual((tunnel.public_key, tunnel.listen_port), (OWN_KEY, 5871))
        self.assertEqual(tunnel.peers[KEY].allowed, frozenset(LINK.remote))
        self.assertEqual(tunnel.peers[OWN_KEY], TunnelPeer("", frozenset()))
        self.assertIsNone(wireguard.parse_dump(""))

    def test_no_table(self) -> None:
        """Where there is no table nft says nothing; an empty one is one."""
        self.assertIsNone(nftables.parse_table(""))
        self.assertIsNotNone(nftables.parse_table('{"nftables": []}'))

    def test_routes(self) -> None:
        """Destination, device, MTU and source of a route are read."""
        text = (
            '[{"dst":"10.72.0.0/24","dev":"liqod","prefsrc":"10.70.0.1","flags":[],"metrics":[{"mtu":1300}]},'
            '{"dst":"10.9.9.9","dev":"liqod","flags":[]}]'
        )
        self.assertEqual(
            routes.parse_routes(text),
            {net("10.72.0.0/24"): Route("liqod", 1300, "10.70.0.1"), net("10.9.9.9/32"): Route("liqod")},
        )

    def test_the_hosts_networks(self) -> None:
        """Own routes, the default route and the loopback network are none of the host's; its next hops are apart."""
        text = (
            '[{"dst":"default","gateway":"10.98.0.254","dev":"eth0"},{"dst":"10.98.0.0/24","dev":"eth0"},'
            '{"dst":"10.72.0.0/16","dev":"liqod"},{"type":"local","dst":"127.0.0.0/8","dev":"lo"},'
            '{"type":"broadcast","dst":"10.98.0.255","dev":"eth0"}]'
        )
        self.assertEqual(routes.host_networks(text, "liqod"), [net("10.98.0.0/24")])
        self.assertEqual(routes.next_hops(text), [net("10.98.0.254/32")])
        many = (
            '[{"dst":"default","nexthops":[{"gateway":"10.1.2.3"},{"via":{"host":"fd00::9"}}]},'
            '{"dst":"default","gateway":"fe80::1"}]'
        )
        self.assertEqual(routes.next_hops(many), [net("10.1.2.3/32"), net("fd00::9/128")])

    def test_rules_of_ours(self) -> None:
        """Rules by the table that they look up, for one device or for all, and those that the kernel is not said of."""
        text = (
            '[{"priority":0,"src":"all","table":"local","protocol":"kernel"},'
            '{"priority":18952,"src":"all","table":"18952","protocol":"kernel"},'
            '{"priority":5000,"src":"all","table":"18952","protocol":"unspec"},'
            '{"priority":5001,"src":"all","iif":"liqod","table":"18952","protocol":"boot"},'
            '{"priority":5002,"src":"all","table":"18952"}]'
        )
        self.assertEqual(routes.rule_priorities(text, 18952), {18952, 5000, 5002})
        self.assertEqual(routes.unmarked_priorities(text, 18952), {5000})
        self.assertEqual(routes.rule_priorities(text, 18952, "liqod"), {5001})
        self.assertEqual(routes.unmarked_priorities(text, 18952, "liqod"), {5001})
        self.assertEqual(routes.unmarked_priorities("", 18952), frozenset())

    def test_name_servers(self) -> None:
        """The addresses of resolv.conf(5), without a stub's on loopback; what is no address is passed over."""
        text = "search rome\nnameserver 127.0.0.53\nnameserver 10.1.2.3\nnameserver fd00::53%eth0\nnameserver x\n#\n"
        self.assertEqual(name_servers(text), [net("10.1.2.3/32"), net("fd00::53/128")])

    def test_peers_with_similar_ids(self) -> None:
        """Two peers whose IDs have equal beginnings of their hashes have sets of their own: the name has all of it."""
        links = [attrs.evolve(LINK, peer=ClusterID(f"milan-{n}"), pods=frozenset({f"10.201.0.{n}"})) for n in range(9)]
        sets = gateway_sets(attrs.evolve(DESIRED, links=tuple(links)))
        pods = {name: sorted(found) for name, found in sets.items() if name.startswith("pods_")}
        self.assertEqual(sorted(pods.values()), [[f"10.201.0.{n}"] for n in range(9)])
        self.assertEqual({len(name) for name in pods}, {len("pods__4") + 64})

    def test_another_priority(self) -> None:
        """A rule of another priority, from before the setting changed, goes; the new one is there instead."""
        desired = attrs.evolve(DESIRED, priority=5000)
        (step,) = routes.missing_route_steps(desired, ObservedKernel())
        self.assertIn("rule add pref 5000 lookup 18952 protocol kernel\n", step.stdin)
        old = ObservedKernel(policies=frozenset({(4, 18952), (4, 5000)}))
        (step,) = routes.stale_route_steps(desired, old)
        self.assertEqual(step.stdin, "rule del pref 18952 lookup 18952\n")
