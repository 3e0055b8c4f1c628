"""A host's network in memory: understands the commands that the fabric uses of ip, wg and nft, and refuses all others.

What it shows is in the programs' own formats, so that reading is tested as well as writing. ``fail_after`` makes every
command fail after so many: the fabric's host crashed there.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from liqod.fabric.agent.kernel.host import KernelError, ProgramOutput

_OK: Final = ProgramOutput(0, "", "")


class Refused(Exception):
    """A command that a real host would refuse too."""


@attrs.define
class FakeLink:
    """A network interface."""

    kind: str
    mtu: int = 1500
    up: bool = False
    addresses: list[str] = attrs.field(factory=list)
    public_key: str = attrs.field(default="(none)", kw_only=True)
    port: int = attrs.field(default=0, kw_only=True)
    vxlan: dict[str, Any] = attrs.field(factory=dict, kw_only=True)
    hosts: dict[str, str] = attrs.field(factory=dict, kw_only=True)
    neighbours: dict[str, str] = attrs.field(factory=dict, kw_only=True)
    rp_filter: str = attrs.field(default="0", kw_only=True)
    peers: dict[str, dict[str, Any]] = attrs.field(factory=dict, kw_only=True)


def public_key(private: str) -> str:
    """Return a made-up public key for a private one; only that it is always the same matters here."""
    return base64.b64encode(hashlib.sha256(private.encode()).digest()).decode()


class FakeKernel:
    """One host. ``links``, ``rules``, ``routes`` and ``tables`` are its state; ``commands`` is what was asked of it.

    ``is_forwarding``: its devices forward packets. Without ``has_six`` they have no IPv6
    (net.ipv6.conf.all.disable_ipv6 is 1). ``all_rp_filter`` is net.ipv4.conf.all.rp_filter; with ``read_only`` no
    kernel parameter can be written, as in a container.
    ``unmarked`` are those of the rules that do not say that the kernel made them.
    """

    def __init__(self) -> None:
        self.links: dict[str, FakeLink] = {"eth0": FakeLink("veth", 1500, True, ["192.0.2.1/24"])}
        self.rules: set[tuple[str, str, str, str]] = set()
        self.unmarked: set[tuple[str, str, str, str]] = set()
        self.routes: dict[str, dict[str, dict[str, Any]]] = {"4": {}, "6": {}}
        self.tables: dict[str, dict[str, Any]] = {}
        self.flows: set[tuple[str, str]] = set()
        self.commands: list[tuple[str, ...]] = []
        self.fail_after: int | None = None
        self.has_six = True
        self.is_forwarding = True
        self.all_rp_filter = "1"
        self.read_only = False

    async def run(self, argv: Sequence[str], stdin: str = "") -> ProgramOutput:
        """Run a command."""
        self.commands.append(tuple(argv))
        changes = "-j" not in argv and "show" not in argv and "-n" not in argv
        if changes and self.fail_after is not None:
            if self.fail_after == 0:
                raise KernelError("the host crashed")
            self.fail_after -= 1
        program: dict[str, Callable[[list[str], str], ProgramOutput]] = {
            "ip": self._ip,
            "wg": self._wg,
            "nft": self._nft,
            "bridge": self._bridge,
            "sysctl": lambda words, _: self._sysctl(words),
            "conntrack": lambda words, _: self._conntrack(words),
            "setsid": lambda words, _: self._add_link(words[-1], "tun"),
        }
        try:
            return program[argv[0]](list(argv[1:]), stdin)
        except Refused as error:
            return ProgramOutput(1, "", str(error))

    def state(self) -> object:
        """Return all that a command could have changed, as one comparable value."""
        links = {name: attrs.asdict(link) for name, link in self.links.items()}
        return json.loads(json.dumps([links, sorted(self.rules), sorted(self.unmarked), self.routes, self.tables]))

    # ip

    def _ip(self, words: list[str], stdin: str) -> ProgramOutput:
        version = next((word[1] for word in words if word in ("-4", "-6")), "4")
        if "-batch" in words:
            for line in stdin.splitlines():
                self._ip_line(version, line.split())
            return _OK
        if "-j" in words:
            return ProgramOutput(0, json.dumps(self._shown(version, [word for word in words if word[0] != "-"])), "")
        self._ip_line(version, [word for word in words if word not in ("-4", "-6")])
        return _OK

    def _ip_line(self, version: str, words: list[str]) -> None:
        match words:
            case ["link", *rest]:
                self._link_line(rest)
            case ["address", "add", address, "dev", name]:
                self._check_six(address, "Error: ipv6: IPv6 is disabled on this device.")
                if address in self._link(name).addresses:
                    raise Refused("RTNETLINK answers: File exists")
                self._link(name).addresses.append(address)
            case ["address", "del", address, "dev", name]:
                self._link(name).addresses.remove(address)
            case ["rule", verb, "pref", pref, *rest]:
                self._rule_line(version, verb, pref, rest)
            case ["route", verb, destination, *rest]:
                self._route_line(version, verb, destination, rest)
            case ["neigh", "replace", address, "lladdr", mac, "dev", name, "nud", "permanent"]:
                self._check_six(address, "Error: IPv6 is disabled on this device.")
                self._link(name).neighbours[address] = mac
            case ["neigh", "del", address, "dev", name]:
                del self._link(name).neighbours[address]
            case _:
                raise AssertionError(f"ip {' '.join(words)} is not understood")

    def _check_six(self, text: str, said: str) -> None:
        if ":" in text and not self.has_six:
            raise Refused(said)

    def _rule_line(self, version: str, verb: str, pref: str, words: list[str]) -> None:
        match words:
            case ["lookup", table, "protocol", "kernel"] if verb == "add":
                self._rule(verb, (version, pref, table, ""))
            case ["iif", source, "lookup", table, "protocol", "kernel"] if verb == "add":
                self._rule(verb, (version, pref, table, source))
            case ["lookup", table] if verb == "del":
                known = [rule for rule in self.rules if rule[:3] == (version, pref, table)]
                self._rule("del", known[0] if known else (version, pref, table, ""))
            case _:
                raise AssertionError(f"ip rule {verb} pref {pref} {' '.join(words)} is not understood")

    def _route_line(self, version: str, verb: str, destination: str, words: list[str]) -> None:
        if verb == "replace":
            self._check_six(destination, "Error: IPv6 is disabled on nexthop device.")
        match [verb, *(word for word in words if word != "inet6")]:
            case ["replace", "dev", name, "table", "18952", *options]:
                self._add_route(version, destination, name, options)
            case ["replace", "via", gateway, "dev", name, "onlink", "table", table, *options]:
                if not self._link(name).up:
                    raise Refused("Error: Device for nexthop is not up.")
                route: dict[str, Any] = {"dev": name, "gateway": gateway, "table": table}
                if "mtu" in options:
                    route["metrics"] = [{"mtu": int(options[-1])}]
                self.routes[version][destination] = route
            case ["del", "table", _]:
                if self.routes[version].pop(destination, None) is None:
                    raise Refused("RTNETLINK answers: No such process")
            case _:
                raise AssertionError(f"ip route {verb} {destination} {' '.join(words)} is not understood")

    def _link_line(self, words: list[str]) -> None:
        match words:
            case ["add", "dev", name, "type", kind]:
                self._add_link(name, kind)
            case ["add", "dev", "liqod-probe", "type", "vxlan", *_]:
                self._add_link("liqod-probe", "vxlan")
            case ["add", "dev", name, "address", mac, "type", "vxlan", *words] if words[-1] == "nolearning":
                self._add_link(name, "vxlan")
                options = dict(zip(words[::2], words[1::2], strict=False))
                link = self.links[name]
                link.vxlan = {"id": int(options["id"]), "port": int(options["dstport"]), "local": options["local"]}
                link.vxlan["address"] = mac
            case ["del", "dev", name]:
                self._link(name)
                del self.links[name]
                for table in self.routes.values():
                    for destination in [one for one, route in table.items() if route["dev"] == name]:
                        del table[destination]
            case ["set", "dev", name, "addrgenmode", "none"]:
                self._link(name)
            case ["set", "dev", name, "mtu", mtu]:
                self._link(name).mtu = int(mtu)
            case ["set", "dev", name, "up"]:
                self._link(name).up = True
            case _:
                raise AssertionError(f"ip link {' '.join(words)} is not understood")

    def _bridge(self, words: list[str], stdin: str) -> ProgramOutput:
        match words:
            case ["-j", "fdb", "show", "dev", name]:
                return ProgramOutput(
                    0, json.dumps([{"mac": mac, "dst": to} for mac, to in self._link(name).hosts.items()]), ""
                )
            case ["-batch", "-"]:
                for line in stdin.splitlines():
                    match line.split():
                        case ["fdb", "replace", mac, "dev", name, "dst", to, "self", "permanent"]:
                            if (":" in to) != (":" in self._link(name).vxlan["local"]):
                                raise Refused("RTNETLINK answers: Address family not supported by protocol")
                            self._link(name).hosts[mac] = to
                        case ["fdb", "del", mac, "dev", name, "dst", _, "self"]:
                            del self._link(name).hosts[mac]
                        case _:
                            raise AssertionError(f"bridge {line} is not understood")
                return _OK
        raise AssertionError(f"bridge {' '.join(words)} is not understood")

    def _sysctl(self, words: list[str]) -> ProgramOutput:
        match words:
            case ["-n", "net.ipv4.ip_forward"]:
                return ProgramOutput(0, "1\n", "")
            case ["-n", name] if name.endswith(".forwarding"):
                self._link(name.split(".")[3])
                return ProgramOutput(0, f"{self.is_forwarding:d}\n", "")
            case ["-n", "net.ipv6.conf.default.disable_ipv6"]:
                return ProgramOutput(0, "0\n" if self.has_six else "1\n", "")
            case ["-n", "net.ipv4.conf.all.rp_filter"]:
                return ProgramOutput(0, self.all_rp_filter + "\n", "")
            case ["-n", name] if name.endswith(".rp_filter"):
                return ProgramOutput(0, self._link(name.split(".")[3]).rp_filter + "\n", "")
            case ["-q", "-w", setting] if ".rp_filter=" in setting:
                if self.read_only:
                    raise Refused(f"sysctl: cannot set {setting}: Read-only file system")
                name, _, value = setting.partition("=")
                self._link(name.split(".")[3]).rp_filter = value
                return _OK
        raise AssertionError(f"sysctl {' '.join(words)} is not understood")

    def _conntrack(self, words: list[str]) -> ProgramOutput:
        """Forget the connections of a network; none is made here, but ``flows`` can name some as (source, target)."""
        match words:
            case ["-D", "-f", version, "--orig-src" | "--orig-dst" as end, text]:
                network, index = ipaddress.ip_network(text), end == "--orig-dst"
                if version != f"ipv{network.version}":
                    raise Refused("conntrack v1.4.7 (conntrack-tools): mismatched address family")
                found = {flow for flow in self.flows if ipaddress.ip_address(flow[index]) in network}
                self.flows -= found
                said = f"conntrack v1.4.7 (conntrack-tools): {len(found)} flow entries have been deleted."
                return ProgramOutput(0 if found else 1, "", said)
        raise AssertionError(f"conntrack {' '.join(words)} is not understood")

    def _rule(self, verb: str, rule: tuple[str, str, str, str]) -> None:
        if (verb == "add") == (rule in self.rules):
            raise Refused("RTNETLINK answers: File exists" if verb == "add" else "RTNETLINK answers: No such file")
        (self.rules.add if verb == "add" else self.rules.remove)(rule)
        self.unmarked.discard(rule)

    def _add_route(self, version: str, destination: str, name: str, options: list[str]) -> None:
        if not self._link(name).up:
            raise Refused("Error: Device for nexthop is not up.")
        ipaddress.ip_network(destination)
        route: dict[str, Any] = {"dev": name}
        if "src" in options:
            source = options[options.index("src") + 1]
            if not any(address.split("/")[0] == source for link in self.links.values() for address in link.addresses):
                raise Refused("Error: Invalid prefsrc address.")
            route["prefsrc"] = source
        if "mtu" in options:
            route["metrics"] = [{"mtu": int(options[-1])}]
        self.routes[version][destination] = route

    def _shown(self, version: str, words: list[str]) -> list[dict[str, Any]]:
        match words:
            case ["addr", "show", "dev", name]:
                return [self._as_json(name, self._link(name))]
            case ["addr", "show"]:
                return [self._as_json(name, link) for name, link in self.links.items()]
            case ["rule"]:
                # As ip(8) does with details.
                ours = [
                    {
                        "priority": int(pref),
                        "table": table,
                        "protocol": "unspec" if (shown, pref, table, source) in self.unmarked else "kernel",
                        **({"iif": source} if source else {}),
                    }
                    for shown, pref, table, source in sorted(self.rules)
                    if shown == version
                ]
                local = {"priority": 0, "table": "local", "protocol": "kernel"}
                return [local, *ours, {"priority": 32766, "table": "main", "protocol": "kernel"}]
            case ["neigh", "show", "dev", name]:
                known = self._link(name).neighbours.items()
                wanted = [(to, mac) for to, mac in known if (":" in to) == (version == "6")]
                return [{"dst": to, "lladdr": mac, "state": ["PERMANENT"]} for to, mac in wanted]
            case ["route", "show", "table", number] if number != "all":
                mine = {to: one for to, one in self.routes[version].items() if one.get("table", "18952") == number}
                if not mine:
                    raise Refused("Error: ipv4: FIB table does not exist.")
                return [{"dst": destination, **route} for destination, route in mine.items()]
            case ["route", "show", "table", "all"]:
                main = [{"dst": "default", "dev": "eth0"}, {"dst": "192.0.2.0/24", "dev": "eth0"}]
                return main if version == "4" else []
        raise AssertionError(f"ip -j {' '.join(words)} is not understood")

    def _as_json(self, name: str, link: FakeLink) -> dict[str, Any]:
        addresses = [
            {"local": one.split("/")[0], "prefixlen": int(one.split("/")[1]), "scope": "global"}
            for one in link.addresses
        ]
        flags = ["UP"] if link.up else []
        return {
            "ifname": name,
            "mtu": link.mtu,
            "flags": flags,
            "addr_info": addresses,
            "address": link.vxlan.get("address", ""),
            "linkinfo": {"info_kind": link.kind, "info_data": link.vxlan},
        }

    def _link(self, name: str) -> FakeLink:
        if name not in self.links:
            raise Refused(f'Device "{name}" does not exist.')
        return self.links[name]

    def _add_link(self, name: str, kind: str) -> ProgramOutput:
        if name in self.links:
            raise Refused("RTNETLINK answers: File exists")
        self.links[name] = FakeLink(kind)
        return _OK

    # wg

    def _wg(self, words: list[str], stdin: str) -> ProgramOutput:
        link = self._link(words[1])
        match words:
            case ["show", _, "dump"]:
                return ProgramOutput(0, self._dump(link), "")
            case ["set", _, "private-key", "/dev/stdin"]:
                link.public_key = public_key(stdin.strip())
            case ["set", _, "listen-port", port]:
                link.port = int(port)
            case ["set", _, "peer", key, "remove"]:
                link.peers.pop(key, None)
            case ["addconf", _, "/dev/stdin"]:
                for section in stdin.split("[Peer]\n")[1:]:
                    self._add_peer(link, dict(line.split(" = ", 1) for line in section.strip().splitlines()))
            case _:
                raise AssertionError(f"wg {' '.join(words)} is not understood")
        return _OK

    def _add_peer(self, link: FakeLink, fields: dict[str, str]) -> None:
        peer = link.peers.setdefault(fields["PublicKey"], {"endpoint": "(none)", "handshake": 0})
        peer["endpoint"] = fields.get("Endpoint", peer["endpoint"])
        peer["allowed"] = [str(ipaddress.ip_network(one)) for one in fields.get("AllowedIPs", "").split(", ") if one]
        for key, other in link.peers.items():
            # A network belongs to one peer: the one that names it last.
            if key != fields["PublicKey"]:
                other["allowed"] = [one for one in other["allowed"] if one not in peer["allowed"]]

    def _dump(self, link: FakeLink) -> str:
        lines = [f"(hidden)\t{link.public_key}\t{link.port}\toff"]
        for key, peer in link.peers.items():
            allowed = ",".join(peer["allowed"]) or "(none)"
            lines.append(f"{key}\t(none)\t{peer['endpoint']}\t{allowed}\t{peer['handshake']}\t0\t0\t10")
        return "\n".join(lines) + "\n"

    # nft

    def _nft(self, words: list[str], stdin: str) -> ProgramOutput:
        if words[:3] == ["-j", "list", "table"]:
            name = " ".join(words[3:])
            if name not in self.tables:
                raise Refused("Error: No such file or directory")
            return ProgramOutput(0, json.dumps({"nftables": self._listed(self.tables[name])}), "")
        if words == ["--check", "-f", "-"]:
            return _OK
        if words != ["-f", "-"]:
            raise AssertionError(f"nft {' '.join(words)} is not understood")
        tables = json.loads(json.dumps(self.tables))  # all or nothing
        self._script(tables, stdin)
        self.tables = tables
        return _OK

    def _script(self, tables: dict[str, Any], script: str) -> None:
        for match in re.finditer(r"^(table|delete table) (\w+ \w+)( \{\n(.*?)^\})?$", script, re.M | re.S):
            verb, name, _, body = match.groups()
            if verb == "delete table":
                if name not in tables:
                    raise Refused("Error: No such file or directory")
                del tables[name]
                continue
            table = tables.setdefault(name, {"chains": {}, "sets": {}})
            for kind, part, inner in re.findall(r"^\t(chain|set|map) (\S+) \{\n(.*?)^\t\}$", body or "", re.M | re.S):
                lines = [line.strip() for line in inner.splitlines()]
                if kind == "chain":
                    table["chains"][part] = [line for line in lines if not line.startswith("type ")]
                else:
                    elements = " ".join(lines[1:]).removeprefix("elements = { ").removesuffix(" }")
                    table["sets"][part] = elements.split(", ") if elements else []
        for name, part in re.findall(r"^add chain (\w+ \w+) (\S+)$", script, re.M):
            if name not in tables:
                raise Refused("Error: No such file or directory")
            tables[name]["chains"].setdefault(part, [])
        for verb, name, part, elements in re.findall(
            r"^(add|delete) element (\w+ \w+) (\S+) \{ (.*) \}$", script, re.M
        ):
            members = tables[name]["sets"][part]
            for element in elements.split(", "):
                if verb == "add" and element.partition(" : ")[0] in [one.partition(" : ")[0] for one in members]:
                    raise Refused("Error: Could not process rule: File exists")
                (members.append if verb == "add" else members.remove)(element)

    def _listed(self, table: dict[str, Any]) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = [{"metainfo": {}}]
        for name, members in table["sets"].items():
            listed.append({"map" if any(" : " in one for one in members) else "set": _set_as_shown(name, members)})
        for name, rules in table["chains"].items():
            listed.append({"chain": {"name": name}})
            listed += [{"rule": {"chain": name, "expr": rule}} for rule in rules]
        return listed


def _set_as_shown(name: str, members: list[str]) -> dict[str, Any]:
    """Return a set or a map as nft shows it in JSON."""
    elements: list[Any] = []
    for member in members:
        if " : " in member:
            elements.append(member.split(" : "))
        elif " . " in member:
            elements.append({"concat": [int(part) if part.isdecimal() else part for part in member.split(" . ")]})
        else:
            elements.append(member)
    return {"name": name, "elem": elements}
