"""Names of home inside offloaded pods, and nothing of others, with the DNS and the proxies of two real clusters."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, ClassVar

from liqod.model.names import remote_namespace
from liqod.model.records.name_service import SLOTS, object_name
from tests.real.daemons import Daemon
from tests.real.manifests import service
from tests.real.pair import PairTests
from tests.real.path import (
    NAMESPACE,
    deployment,
    enabled_namespace,
    eventually,
    live_pods,
    node_ready,
    offloaded,
    peer_of,
    trust_each_other,
)

DB = "db"
HOME = "home.example"
"""The domain of rome's cluster; milan's is cluster.local."""
AS_IT_COMES = '\n[metrics]\nlisten = ""\n'
"""Nothing is said of names: the daemon that leads answers."""
OF_NAMES = '\n[daemon]\nrole = "names"\n[names]\nslot = 2\n[metrics]\nlisten = ""\n'
GLIBC = "mount --bind {file} /etc/resolv.conf && exec getent ahostsv4 {name}"


def stateful(name: str, namespace: str) -> dict[str, Any]:
    """Return a StatefulSet with one pod, whose service has its name."""
    made = deployment(name, 1, namespace=namespace)
    return {**made, "kind": "StatefulSet", "spec": {**made["spec"], "serviceName": name}}


def reverse(address: str) -> str:
    """Return the name of an address of IPv4 in the reverse zone."""
    return ".".join(reversed(address.split("."))) + ".in-addr.arpa"


class NamesTests(PairTests):
    """One walk: two name servers for a tenant, a pod that asks them, a tenant that asks for others, one server less."""

    start_daemons = False
    shape: ClassVar[dict[str, Any]] = {"dns": True}
    second: ClassVar[Daemon]

    @property
    def space(self) -> str:
        """The namespace at milan for the client's."""
        return remote_namespace(NAMESPACE, self.rome_id)

    @property
    def rome_id(self) -> str:
        """The ID of rome's cluster."""
        return str(peer_of(self.milan.cluster, "rome")["metadata"]["name"])

    def client(self) -> dict[str, Any]:
        """Return the pod at milan that asks."""
        (found,) = live_pods(self.milan.cluster, "client").values()
        return found

    def inside(self, *words: str) -> str:
        """Run a program of the client's."""
        return self.milan.cluster.kubectl("exec", "-n", self.space, self.client()["metadata"]["name"], "--", *words)

    def addresses(self, name: str) -> set[str]:
        """Return what glibc finds for a name in the client's network, with the client's own resolv.conf."""
        cluster = self.milan.cluster
        container = self.client()["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        tasks = cluster.host.run(["ctr", "--namespace", "k8s.io", "tasks", "list"])
        (process,) = [line.split()[1] for line in tasks.splitlines() if line.startswith(container)]
        file = cluster.directory / "resolv.conf"
        file.write_text(self.inside("cat", "/etc/resolv.conf"))
        script = GLIBC.format(file=file, name=name)
        command = ["nsenter", f"--net=/proc/{process}/ns/net", "unshare", "-m", "sh", "-c", script]
        return {line.split()[0] for line in cluster.host.run(command).splitlines()}

    def asked(self, kind: str, name: str) -> str:
        """Return what the client's own nslookup says of a name, refusals among it."""
        return self.inside("sh", "-c", f"nslookup -type={kind} {name} 2>&1 || true")

    def ready_servers(self, slots: tuple[int, ...]) -> bool:
        """Tell whether the name services of rome at milan lead to a process each."""
        found = []
        for slot in slots:
            words = (object_name(slot), "-n", f"liqo-tenant-{self.rome_id}")
            piece = self.milan.cluster.get("endpointslice", *words)
            found.append((piece["endpoints"][0]["conditions"]["ready"], piece["ports"][0]["port"]))
        return all(ready for ready, _ in found) and len({port for _, port in found}) == len(slots)

    def test_01_servers(self) -> None:
        """Each tenant has two name services; the second one leads to a process of its own, with fewer rights."""
        for daemon, extra in ((self.rome, ""), (self.milan, AS_IT_COMES)):
            daemon.config.write_text(daemon.config.read_text() + extra)
        text = self.rome.config.read_text()
        self.rome.config.write_text(text.replace("[cluster]\n", f'[cluster]\ndomain = "{HOME}"\n', 1))
        self.rome.start()
        self.milan.start()
        type(self).second = Daemon(self.milan.cluster, "milan", identity="names", extra=OF_NAMES)
        self.second.start()
        trust_each_other(self.rome, self.milan)
        eventually("the virtual node is Ready", partial(node_ready, self.rome.cluster))
        eventually("two name services", partial(self.ready_servers, SLOTS))

    def test_02_pod(self) -> None:
        """An offloaded pod asks the two servers, with the search list of its home."""
        for space in (NAMESPACE, DB):
            self.rome.cluster.apply(enabled_namespace(space))
        pg = service("pg", {"app": "pg"}, 5432, namespace=DB)
        pg["spec"]["clusterIP"] = "None"
        cache = service("cache", {"app": "client"}, 6379, namespace=NAMESPACE)
        cache["spec"]["ports"][0]["name"] = "redis"
        self.rome.cluster.apply(pg, cache, deployment("client", 1), stateful("pg", DB))
        for app in ("client", "pg"):
            eventually(f"{app} at milan", partial(offloaded, self.rome.cluster, self.milan.cluster, app, 1))
        names = [object_name(slot) for slot in SLOTS]
        space = f"liqo-tenant-{self.rome_id}"
        servers = [self.milan.cluster.get("service", one, "-n", space)["spec"]["clusterIP"] for one in names]
        said = self.inside("cat", "/etc/resolv.conf").splitlines()
        self.assertEqual([f"nameserver {one}" for one in servers], [one for one in said if "nameserver" in one])
        self.assertIn(f"search {NAMESPACE}.svc.{HOME} svc.{HOME} {HOME}", said)

    def test_03_forms(self) -> None:
        """Every form of a name that resolves at home resolves here, to what stands for it here."""
        cluster = self.milan.cluster
        cache = cluster.get("service", "cache", "-n", self.space)["spec"]["clusterIP"]
        (pg,) = live_pods(cluster, "pg").values()
        for name in ("cache", f"cache.{NAMESPACE}", f"cache.{NAMESPACE}.svc", f"cache.{NAMESPACE}.svc.{HOME}"):
            eventually(name, partial(self.found, name, {cache}))
        for name in (f"pg.{DB}", f"pg-0.pg.{DB}", f"pg-0.pg.{DB}.svc", f"pg-0.pg.{DB}.svc.{HOME}"):
            eventually(name, partial(self.found, name, {pg["status"]["podIP"]}))
        said = self.asked("srv", f"_redis._tcp.cache.{NAMESPACE}.svc.{HOME}")
        self.assertIn(f"cache.{NAMESPACE}.svc.{HOME}", said.replace("_redis._tcp.cache", ""))
        self.assertIn("6379", said)
        self.assertIn(f"name = cache.{NAMESPACE}.svc.{HOME}", self.asked("ptr", reverse(cache)))

    def found(self, name: str, wanted: set[str]) -> bool:
        """Tell whether a name leads to these addresses."""
        return self.addresses(name) == wanted

    def test_04_nothing_of_others(self) -> None:
        """A tenant learns neither other namespaces' services nor whose addresses of milan are."""
        cluster = self.milan.cluster
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}})
        cluster.apply(service("secret", {"app": "none"}, 80, namespace="own"))
        secret = cluster.get("service", "secret", "-n", "own")["spec"]["clusterIP"]
        kubernetes = cluster.get("service", "kubernetes")["spec"]["clusterIP"]
        direct = cluster.addresses.dns
        known = self.inside("sh", "-c", f"nslookup -type=a secret.own.svc.cluster.local {direct} 2>&1 || true")
        self.assertIn(secret, known, "milan's own DNS knows the name")
        for name in ("secret.own.svc.cluster.local", "kubernetes.default.svc.cluster.local", f"secret.own.svc.{HOME}"):
            for kind in ("a", "srv", "any"):
                said = self.asked(kind, name)
                self.assertNotIn(secret, said)
                self.assertNotIn(kubernetes, said)
                self.assertIn("NXDOMAIN" if kind != "any" else "REFUSED", said)
        for name in (f"cache.{self.space}.svc.cluster.local", "own.svc.cluster.local", "svc.cluster.local"):
            self.assertIn("NXDOMAIN", self.asked("a", name))
        for address in (secret, kubernetes, direct, cluster.address):
            said = self.asked("ptr", reverse(address))
            self.assertIn("NXDOMAIN", said)
            self.assertNotIn("cluster.local", said)

    def test_05_one_server_less(self) -> None:
        """When the first process is killed, and control with it, pods ask the second one."""
        (cache,) = self.addresses("cache")
        self.milan.kill()
        self.assertEqual(self.addresses(f"cache.{NAMESPACE}"), {cache})
        self.assertEqual(self.addresses(f"cache.{NAMESPACE}.svc.{HOME}"), {cache})
        self.milan.start()

    def test_06_its_place_is_taken(self) -> None:
        """When a process has ended in order, its service leads to the other one; the address of pods is the same."""
        eventually("two name services", partial(self.ready_servers, SLOTS))
        self.second.stop()
        words = (object_name(2), "-n", f"liqo-tenant-{self.rome_id}")
        first = self.milan.cluster.get("service", object_name(1), *words[1:])["spec"]["ports"][0]["targetPort"]
        eventually(
            "the second service leads to the first process",
            lambda: self.milan.cluster.get("endpointslice", *words)["ports"][0]["port"] == first,
        )
        server = self.milan.cluster.get("service", *words)["spec"]["clusterIP"]
        (cache,) = self.addresses("cache")
        name = f"cache.{NAMESPACE}.svc.{HOME}"
        eventually(
            "an answer", lambda: re.search(rf"Address.*{re.escape(cache)}", self.inside("nslookup", name, server))
        )
