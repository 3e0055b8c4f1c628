"""Hosts of clusters with one pod each, in network namespaces: a bridge, a pod, a CNI that masquerades, a fabric."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from liqod.fabric.agent.key import NEXT, SECRET, generate
from liqod.model.names import MANAGED_BY_LABEL, MANAGED_BY_SHADOWPOD, ORIGIN_LABEL, REMOTE_CLUSTER_LABEL
from liqod.model.records.network import Network
from tests.netns import lan
from tests.netns.lan import Lan, run

ROOT = Path(__file__).parents[2]
API = "10.98.0.254"
POD_CIDR = "10.201.0.0/24"
CLUSTER_CIDR = "10.201.0.0/16"
BRIDGE, POD = "10.201.0.1", "10.201.0.2"
MASQUERADE = f"""\
table ip cni
delete table ip cni
table ip cni {{
	chain post {{
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr {POD_CIDR} ip daddr != {POD_CIDR} masquerade
	}}
}}
"""
DUMP = (
    ("ip", "-o", "link"),
    ("ip", "-o", "address"),
    ("ip", "rule"),
    ("ip", "-6", "rule"),
    ("ip", "route", "show", "table", "all"),
    ("ip", "-6", "route", "show", "table", "all"),
    ("nft", "list", "ruleset"),
    ("sysctl", "net.ipv4.ip_forward", "net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter"),
)
"""What shows all of a host's network state that somebody could have changed."""


def network(text: str) -> Network:
    """Return a text as a network."""
    return ipaddress.ip_network(text)


def missing() -> str:
    """Return why these hosts cannot be made here, or an empty text."""
    if why := lan.missing():
        return why
    for tool in ("nft", "wg", "wireguard-go", "conntrack", "unshare"):
        if shutil.which(tool) is None:
            return f"the program {tool} is not installed"
    return ""


class Hosts:
    """Hosts named a, b, c...: each the only node of a cluster of that name, all with the same pod network.

    ``nodes`` are further hosts by name, each with the name of the cluster whose second node it is. With ``dual`` all
    pods have IPv6 addresses as well, the same in every cluster too; with ``under_six`` the hosts have such as well, and
    tunnels go between those. ``mtu`` is that of the network between the hosts;
    pods have at least 1500. With ``split`` the fabric of a host is two processes, and only one of them may change it.
    """

    def __init__(
        self,
        *names: str,
        options: dict[str, Any] | None = None,
        nodes: dict[str, str] | None = None,
        dual: bool = False,
        under_six: bool = False,
        mtu: int = 1500,
        split: bool = False,
    ) -> None:
        self.split = split
        self.controls: dict[str, subprocess.Popen[bytes]] = {}
        self.names = names
        self.dual = dual
        self.under_six = under_six
        self.nodes = nodes or {}
        self.lan = Lan(*names, *self.nodes, mtu=mtu)
        # The sandbox has no Service "kubernetes" from which the network of Services could be concluded.
        self.options = {"service_cidrs": ["10.96.0.0/16"], **(options or {"policy": "open"})}
        self.hidden: dict[str, str] = {}
        """By host, the path of a program that its fabric does not find."""
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = contextlib.ExitStack()
        self._known: set[str] = set()
        self.directory = Path()
        self._log: Any = None

    def __enter__(self) -> Hosts:
        try:
            self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="liqod-netns-")))
            self._log = self._stack.enter_context((self.directory / "log").open("ab"))
            self._stack.enter_context(self.lan)
            run("ip", "-n", self.lan.namespace("lan"), "address", "add", f"{API}/24", "dev", "br0")
            run("ip", "-n", self.lan.namespace("lan"), "link", "set", "lo", "up")
            for name in (*self.names, *self.nodes):
                self._stack.callback(subprocess.run, ("ip", "netns", "delete", self.pod(name)), check=False)
                self._furnish(name)
            for name, cluster in self.nodes.items():
                self._join(name, cluster)
            self._start_clusters()
            for name in (*self.names, *self.nodes):
                eventually(f"settled links of {name}", partial(self._settled, name), 20)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is not None:
            print((self.directory / "log").read_text()[-12000:])
        for name in (*self.names, *self.nodes):
            self.stop(name)
            # What carries the data path outlives daemons: it ends with its device.
            subprocess.run(self.inside(name, "ip", "link", "del", "liqod"), check=False, capture_output=True)
        self._stack.close()

    def _furnish(self, name: str) -> None:
        host, pod, third = self.lan.namespace(name), self.pod(name), self._third(name)
        bridge, address = f"10.201.{third}.1", f"10.201.{third}.2"
        run("ip", "netns", "add", pod)
        # A host has its own sockets directory: wireguard-go keeps one there for each device.
        (self.directory / f"{name}-run").mkdir()
        run(*self.inside(name, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"))
        for words in (
            ("-n", host, "link", "add", "cni0", "type", "bridge"),
            ("-n", host, "link", "add", "veth0", "type", "veth", "peer", "name", "eth0", "netns", pod),
            ("-n", host, "link", "set", "veth0", "master", "cni0", "mtu", str(max(1500, self.lan.mtu)), "up"),
            ("-n", host, "address", "add", f"{bridge}/24", "dev", "cni0"),
            ("-n", host, "link", "set", "cni0", "up"),
            ("-n", host, "route", "add", "default", "via", API),
            ("-n", pod, "link", "set", "lo", "up"),
            ("-n", pod, "address", "add", f"{address}/24", "dev", "eth0"),
            ("-n", pod, "link", "set", "eth0", "mtu", str(max(1500, self.lan.mtu)), "up"),
            ("-n", pod, "route", "add", "default", "via", bridge),
        ):
            run("ip", *words)
        if self.dual:
            six = f"fd00:201:0:{third}::"
            run("ip", "-n", host, "address", "add", f"{six}1/64", "dev", "cni0", "nodad")
            run("ip", "-n", pod, "address", "add", f"{six}2/64", "dev", "eth0", "nodad")
            run("ip", "-n", pod, "-6", "route", "add", "default", "via", f"{six}1")
        if self.under_six:
            run("ip", "-n", host, "address", "add", f"{self.six_of(name)}/64", "dev", "eth0", "nodad")
        rules = MASQUERADE.replace(POD_CIDR, f"10.201.{third}.0/24")
        done = subprocess.run(self.inside(name, "nft", "-f", "-"), input=rules.encode(), check=False)
        assert done.returncode == 0

    def six_of(self, name: str) -> str:
        """Return the IPv6 address of a host on the LAN."""
        return f"fd98::{self.lan.addresses[name].rpartition('.')[2]}"

    def _third(self, name: str) -> int:
        """Return the part of the pod network that a host has: the first one in every cluster has the same."""
        return 1 if name in self.nodes else 0

    def _join(self, name: str, cluster: str) -> None:
        """Lead the two hosts of a cluster to each other's pods, as a network plugin without an overlay does."""
        run("ip", "-n", self.lan.namespace(cluster), "route", "add", "10.201.1.0/24", "via", self.lan.addresses[name])
        run("ip", "-n", self.lan.namespace(name), "route", "add", POD_CIDR, "via", self.lan.addresses[cluster])

    def _settled(self, name: str) -> bool:
        """Tell whether the kernel has given every link its own IPv6 address, and found no other host with it.

        That takes up to two seconds (RFC 4862, section 5.4); a dump made before would differ from one made after.
        """
        if self.output(self.inside(name, "sysctl", "-n", "net.ipv6.conf.all.disable_ipv6")).strip() == "1":
            return True
        links = json.loads(self.output(self.inside(name, "ip", "-json", "address", "show", "up")))
        addresses = [[one for one in link["addr_info"] if one["family"] == "inet6"] for link in links]
        return all(each and not any(one.get("tentative") for one in each) for each in addresses)

    def _start_clusters(self) -> None:
        clusters = []
        for name in self.names:
            own = [name, *(node for node, cluster in self.nodes.items() if cluster == name)]
            thirds = {host: self._third(host) for host in own}
            six = {host: f"+fd00:201:0:{third}::/64" if self.dual else "" for host, third in thirds.items()}
            hosts = [f"{self.lan.addresses[host]}+10.201.{thirds[host]}.0/24{six[host]}" for host in own]
            clusters.append("=".join([name, *hosts]))
        command = [sys.executable, "-m", "tests.netns.fabric_clusters", API, str(self.directory), *clusters]
        process = subprocess.Popen(self.lan.inside("lan", *command), cwd=ROOT, stdout=subprocess.PIPE, stderr=self._log)
        self._stack.callback(_end, process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"

    # Commands.

    def inside(self, name: str, *command: str) -> list[str]:
        """Return a command line that runs on a host."""
        hidden = f"mount --bind /dev/null {self.hidden[name]} && " if name in self.hidden else ""
        sockets = f"mkdir -p /run/wireguard && mount --bind {self.directory}/{name}-run /run/wireguard && "
        script = f'{sockets}{hidden}exec "$@"'
        return [*self.lan.inside(name), "unshare", "--mount", "sh", "-c", script, "sh", *command]

    def in_pod(self, name: str, *command: str) -> list[str]:
        """Return a command line that runs in the pod of a host."""
        return ["nsenter", f"--net=/var/run/netns/{self.pod(name)}", *command]

    def pod(self, name: str) -> str:
        """Return the kernel's name of the namespace of the pod on a host."""
        return f"{self.lan.namespace(name)}-pod"

    def output(self, command: Sequence[str], timeout: float = 60.0) -> str:
        """Return what a command says; raises when it fails."""
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
        if done.returncode:
            raise AssertionError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def kubectl_get(self, name: str, path: str) -> Any:
        """Return an object of a cluster's API."""
        return self._request(name, "GET", path)

    def add_pod(self, at: str, name: str, *addresses: str, namespace: str = "default", shadow: bool = False) -> None:
        """Have a cluster's API show a running pod with addresses; nothing runs. ``shadow``: the pod of a ShadowPod."""
        labels = {MANAGED_BY_LABEL: MANAGED_BY_SHADOWPOD} if shadow else {}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"nodeName": "node", "containers": [{"name": "main", "image": "none"}]},
        }
        self._request(at, "POST", f"/api/v1/namespaces/{namespace}/pods", body)
        ips = [{"ip": address} for address in addresses]
        status = {"status": {"phase": "Running", "podIP": addresses[0], "podIPs": ips}}
        self._request(at, "PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", status)

    def add_service(self, at: str, name: str, address: str, *, namespace: str, origin: str) -> None:
        """Have a cluster's API show a Service that a peer reflected; nothing runs."""
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace, "labels": {ORIGIN_LABEL: origin}},
            "spec": {"clusterIP": address, "ports": [{"port": 80}]},
        }
        self._request(at, "POST", f"/api/v1/namespaces/{namespace}/services", body)

    def delete_service(self, at: str, name: str, *, namespace: str) -> None:
        """Have it go."""
        self._request(at, "DELETE", f"/api/v1/namespaces/{namespace}/services/{name}")

    def grant(self, at: str, peer: str) -> str:
        """Have a cluster show a namespace that was granted to a peer; returns its name."""
        name = f"of-{peer}"
        metadata = {"name": name, "labels": {REMOTE_CLUSTER_LABEL: peer}}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self._request(at, "POST", "/api/v1/namespaces", body)
        return name

    @contextlib.contextmanager
    def second_pod(self, at: str, number: int) -> Iterator[tuple[str, ...]]:
        """Run the network of another pod on a host, with an address that ends like that; yields its addresses."""
        host, pod = self.lan.namespace(at), f"{self.pod(at)}{number}"
        third = self._third(at)
        addresses = [f"10.201.{third}.{number}"]
        run("ip", "netns", "add", pod)
        try:
            run("ip", "-n", host, "link", "add", f"veth{number}", "type", "veth", "peer", "name", "eth0", "netns", pod)
            run("ip", "-n", host, "link", "set", f"veth{number}", "master", "cni0", "up")
            # As plugins of bridges set it where pods call themselves by a service.
            run(*self.lan.inside(at, "bridge", "link", "set", "dev", f"veth{number}", "hairpin", "on"))
            for words in (
                ("link", "set", "lo", "up"),
                ("address", "add", f"{addresses[0]}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                ("route", "add", "default", "via", f"10.201.{third}.1"),
            ):
                run("ip", "-n", pod, *words)
            if self.dual:
                addresses.append(f"fd00:201:0:{third}::{number}")
                run("ip", "-n", pod, "address", "add", f"{addresses[1]}/64", "dev", "eth0", "nodad")
                run("ip", "-n", pod, "-6", "route", "add", "default", "via", f"fd00:201:0:{third}::1")
            yield tuple(addresses)
        finally:
            run("ip", "netns", "delete", pod)

    def in_second_pod(self, at: str, number: int, *command: str) -> list[str]:
        """Return a command line that runs in such a pod."""
        return ["nsenter", f"--net=/var/run/netns/{self.pod(at)}{number}", *command]

    def by(self, at: str, peer: str, address: str) -> str:
        """Return how a cluster sees a pod of a peer with an address there."""
        config = self.kubectl_get(at, f"/apis/net.liqo.io/v1alpha1/networkconfigs/{peer}")
        before, after = config["status"]["remote"]["podCIDRs"], config["spec"]["remap"]["podCIDRs"]
        for one, two in zip(map(network, before), map(network, after), strict=True):
            if ipaddress.ip_address(address) in one:
                return str(two[int(ipaddress.ip_address(address)) - int(one.network_address)])
        raise LookupError(f"{address} is no pod's of {peer}")

    def connect_directly(self, at: str, peer: str, home: str, *, confirmed: bool = True) -> None:
        """Have a lender agree that a home's pods there talk straight with those at another one."""
        path = f"/apis/net.liqo.io/v1alpha1/networkconfigs/{peer}"
        networks = self.kubectl_get(at, path)["status"]["remote"]["podCIDRs"]
        grant = {"home": home, "request": 1, "podCIDRs": networks, "confirmed": confirmed}
        self._request(at, "PATCH", f"{path}/status", {"status": {"direct": [grant]}})

    def end_directly(self, at: str, peer: str) -> None:
        """Have a lender end that."""
        path = f"/apis/net.liqo.io/v1alpha1/networkconfigs/{peer}/status"
        self._request(at, "PATCH", path, {"status": {"direct": None}})

    def claim_view(self, at: str, peer: str, networks: list[str]) -> None:
        """Have a peer say that it sees the pods of a cluster by other networks; only while clusters are ``silent``."""
        body = {"status": {"ack": {"podCIDRs": networks}}}
        self._request(at, "PATCH", f"/apis/net.liqo.io/v1alpha1/networkconfigs/{peer}/status", body)

    def _request(self, name: str, method: str, path: str, body: Any = None) -> Any:
        config = json.loads((self.directory / f"{name}.json").read_text())
        url = config["clusters"][0]["cluster"]["server"] + path
        token = config["users"][0]["user"]["token"]
        text = json.dumps(body) if body is not None else ""
        code = (
            "import sys,urllib.request as u;"
            "k='application/merge-patch+json' if sys.argv[3]=='PATCH' else 'application/json';"
            "h={'Authorization':'Bearer '+sys.argv[2],'Content-Type':k};"
            "r=u.Request(sys.argv[1],data=sys.argv[4].encode() or None,headers=h,method=sys.argv[3]);"
            "print(u.urlopen(r).read().decode())"
        )
        return json.loads(
            self.output(self.lan.inside("lan", sys.executable, "-S", "-c", code, url, token, method, text))
        )

    # Daemons.

    def start(self, *names: str) -> None:
        """Start the fabric on hosts."""
        for name in names or (*self.names, *self.nodes):
            self.daemons[name] = subprocess.Popen(self._daemon(name), cwd=ROOT, stdout=self._log, stderr=self._log)
            if self.split and name in self.names:
                self.start_control(name)

    def start_control(self, name: str) -> None:
        """Start control of a host whose fabric is split, without any capability."""
        bare = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
        command = self.inside(name, *bare, *self._fabric(name, "control"))
        self.controls[name] = subprocess.Popen(command, cwd=ROOT, stdout=self._log, stderr=self._log)

    def stop_control(self, name: str) -> None:
        """Stop control of a host whose fabric is split."""
        if name in self.controls:
            _end(self.controls.pop(name))

    def _daemon(self, name: str, *words: str) -> list[str]:
        return self.inside(name, *self._fabric(name, "network" if self.split else "all"), *words)

    def _fabric(self, name: str, process: str) -> list[str]:
        cluster = self.nodes.get(name, name)
        options = {**self.options, "role": "node"} if name in self.nodes else {"process": process, **self.options}
        command = [sys.executable, "-m", "tests.netns.fabric_daemon", str(self.directory / f"{cluster}.json")]
        address = self.six_of(name) if self.under_six else self.lan.addresses[name]
        return [*command, address, json.dumps(options)]

    def stop(self, name: str) -> None:
        """Stop the fabric of a host as the service manager would."""
        self.stop_control(name)
        if name in self.daemons:
            _end(self.daemons.pop(name))

    def kill(self, name: str) -> None:
        """End the fabric of a host as a crash would."""
        process = self.daemons.pop(name)
        process.kill()
        process.wait()

    def reboot(self, name: str) -> None:
        """Have a host, and the pod on it, end at once and begin again; the fabric is not started.

        Processes, links, addresses, routes, rules, nftables and /run are gone: files and the cluster's API are not.
        """
        if name in self.daemons:
            self.kill(name)
        for namespace in (self.lan.namespace(name), self.pod(name)):
            for process in self.output(("ip", "netns", "pids", namespace)).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
        run("ip", "netns", "delete", self.pod(name))
        shutil.rmtree(self.directory / f"{name}-run")
        self.lan.renew(name)
        self._furnish(name)

    def remove_all(self, name: str) -> None:
        """Have the fabric leave nothing on a host."""
        self.output(["sh", "-c", 'cd "$0" && exec "$@"', str(ROOT), *self._daemon(name, "remove")])

    def dump(self, name: str) -> str:
        """Return all of a host's network state that somebody could have changed."""
        return "\n".join(self.output(self.inside(name, *command)) for command in DUMP)

    def unpeer(self, at: str, peer: str) -> None:
        """Have a cluster forget a peer."""
        self._request(at, "DELETE", f"/apis/discovery.liqo.io/v1alpha1/foreignclusters/{peer}")

    def peer(self, at: str, peer: str) -> None:
        """Have a cluster accept a peer's offer."""
        path = "/apis/discovery.liqo.io/v1alpha1/foreignclusters"
        body = {"apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ForeignCluster", "metadata": {"name": peer}}
        self._request(at, "POST", path, {**body, "spec": {"clusterID": peer}})
        yes = [{"type": kind, "status": "True", "reason": "Accepted"} for kind in ("Accepted", "Lending")]
        self._request(at, "PATCH", f"{path}/{peer}/status", {"status": {"conditions": yes}})

    def wireguard_peers(self, name: str) -> list[str]:
        """Return the keys of the peers that a host's tunnel takes."""
        return self.output(self.inside(name, "wg", "show", "liqod", "peers")).split()

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Have clusters hear nothing of each other for a while; their tunnels go on."""
        held, asked = self.directory / "held", secrets.token_hex(8)
        prepared = held.with_suffix(".new")
        prepared.write_text(asked)
        prepared.rename(held)
        eventually("nothing is under way", lambda: held.with_suffix(".seen").read_text() == asked)
        try:
            yield
        finally:
            held.unlink()

    def rotate_key(self, name: str) -> str:
        """Plan the exchange of a cluster's tunnel key; returns the public half of the next one."""
        key = generate()
        data = {"data": {NEXT: base64.b64encode(key.private.encode()).decode()}}
        self._request(name, "PATCH", f"/api/v1/namespaces/liqo-system/secrets/{SECRET}", data)
        return key.public

    def readdress(self, name: str, address: str) -> None:
        """Give a host another address on the LAN instead of the one it has."""
        namespace = self.lan.namespace(name)
        # With the last address of a network its routes go as well.
        run("ip", "-n", namespace, "address", "del", f"{self.lan.addresses[name]}/24", "dev", "eth0")
        run("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
        run("ip", "-n", namespace, "route", "replace", "default", "via", API)

    def remap(self, at: str, peer: str, pods: str, external: str) -> None:
        """Have a cluster see a peer by other networks from now on."""
        body = {"spec": {"remap": {"podCIDRs": [pods], "externalCIDR": external}}}
        self._request(at, "PATCH", f"/apis/net.liqo.io/v1alpha1/networkconfigs/{peer}", body)

    def offload(self, at: str, peer: str) -> None:
        """Have a cluster's pods of the namespace default, its one pod among them, be among those that a peer knows."""
        body = {
            "apiVersion": "virtualkubelet.liqo.io/v1alpha1",
            "kind": "NamespaceNattingTable",
            "metadata": {"name": peer},
            "spec": {
                "clusterID": peer,
                "nattingTable": {"default": "default"},
                "deNattingTable": {"default": "default"},
            },
        }
        self._request(at, "POST", "/apis/virtualkubelet.liqo.io/v1alpha1/namespacenattingtables", body)
        if at not in self._known:
            self._known.add(at)
            self.add_pod(at, "own", POD)
            if self.dual:
                self.add_pod(at, "own-six", "fd00:201::2")

    def request_exports(self, at: str, requests: dict[str, list[tuple[str, str]]] | None) -> None:
        """Have reflection of a cluster ask for addresses, by peer; None: nothing is known any more."""
        path = self.directory / f"{at}.exports"
        if requests is None:
            path.unlink(missing_ok=True)
        else:
            path.with_suffix(".new").write_text(json.dumps(requests))
            path.with_suffix(".new").rename(path)

    def exported(self, at: str, peer: str, address: str) -> str:
        """Return the address at which a cluster's peer reaches one that was exported; LookupError while it is not."""
        config = self.kubectl_get(at, f"/apis/net.liqo.io/v1alpha1/networkconfigs/{peer}")
        for one in config["spec"].get("exports", []):
            if one["address"] == address:
                which = "externalCIDR6" if ":" in address else "externalCIDR"
                ours, seen = config["spec"]["local"][which], config["status"]["ack"][which]
                inside = int(ipaddress.ip_address(one["external"])) - int(network(ours).network_address)
                return str(network(seen)[inside])
        raise LookupError(f"{at} exports {address} to {peer} not (yet)")

    def nft(self, name: str, script: str) -> None:
        """Have a host's nftables changed by somebody else."""
        self.output(self.inside(name, "nft", script))

    def routes(self, name: str) -> str:
        """Return our routing table on a host."""
        return self.output(self.inside(name, "sh", "-c", "ip route show table 18952 2>/dev/null || true"))

    # What is seen.

    def seen(self, at: str, peer: str) -> str:
        """Return the address at which a host reaches the pod of a peer; LookupError while there is none."""
        config = self.kubectl_get(at, f"/apis/net.liqo.io/v1alpha1/networkconfigs/{peer}")
        networks = config.get("spec", {}).get("remap", {}).get("podCIDRs")
        if not networks:
            raise LookupError(f"{at} gave {peer} nothing yet")
        return str(networks[0].rpartition(".")[0]) + ".2"

    def seen_six(self, at: str, peer: str, third: int = 0) -> str:
        """Return the IPv6 address at which a host reaches the pod on a host of a peer."""
        config = self.kubectl_get(at, f"/apis/net.liqo.io/v1alpha1/networkconfigs/{peer}")
        after = ipaddress.IPv6Network(config["spec"]["remap"]["podCIDRs"][1])
        before = ipaddress.IPv6Network(config["status"]["remote"]["podCIDRs"][1])
        inside = int(ipaddress.IPv6Address(f"fd00:201:0:{third}::2")) - int(before.network_address)
        return str(after[inside])

    def gateway(self, at: str, peer: str) -> str:
        """Return the address at which a host reaches the host of a peer through the tunnel."""
        config = self.kubectl_get(at, f"/apis/net.liqo.io/v1alpha1/networkconfigs/{peer}")
        return str(config["spec"]["remap"]["externalCIDR"].rpartition(".")[0]) + ".1"

    def tunnel(self, at: str, peer: str) -> dict[str, Any]:
        """Return the status of the tunnel to a peer."""
        found = self.kubectl_get(at, f"/apis/net.liqo.io/v1alpha1/tunnelendpoints/{peer}")
        return dict(found.get("status", {}))

    def connected(self, *pairs: tuple[str, str]) -> bool:
        """Tell whether all these tunnels are Connected."""
        return all(self.tunnel(at, peer).get("phase") == "Connected" for at, peer in pairs)


CEILING: Final = 120.0
"""Seconds that anything may take on a slow or busy machine: only a failure takes as long."""


def eventually(what: str, check: Callable[[], object], timeout: float = CEILING) -> None:
    """Call until the answer is true."""
    deadline, last = time.monotonic() + timeout, ""
    while time.monotonic() < deadline:
        try:
            answer = check()
            if answer:
                return
            last = repr(answer)
        except (AssertionError, LookupError) as error:
            last = str(error)[-2000:]
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen in {timeout} s: {last}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
