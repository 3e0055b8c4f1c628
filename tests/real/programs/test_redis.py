"""Redis: a server with an append-only file at the lender, a replica at home, clients at both."""

from __future__ import annotations

from functools import partial

from tests.real.path import eventually
from tests.real.programs.base import LONG, ProgramTests
from tests.real.programs.workloads import VIRTUAL, bare_pod, claim, container, of_database, pod_spec, workload

SERVER, REPLICA, FAR = "redis", "redis-replica", "redis-client"
PORT = 6379
COUNT = 2000
OPEN = "--protected-mode no --dir /data"
"""What lets others than the pod itself call it."""
MOUNTS = [{"name": "data", "mountPath": "/data"}]
FILL = f"i=0; while [ $i -lt {COUNT} ]; do i=$((i + 1)); echo SET key:$i value:$i; done | redis-cli -h $0 | grep -c OK"
READ = f"i=0; while [ $i -lt {COUNT} ]; do i=$((i + 1)); echo GET key:$i; done | redis-cli -h $0 | grep -c '^\"*value:'"


class RedisTests(ProgramTests):
    """Steps in the order of their numbers."""

    built = ()
    disks = 1

    @property
    def address(self) -> str:
        """The address of the server's service."""
        return str(self.here("service", SERVER)["spec"]["clusterIP"])

    def cli(self, pod: str, *words: str, address: str = "127.0.0.1") -> str:
        """Run a command of Redis in a pod."""
        return self.run_in(pod, "redis-cli", "-h", address, *words).strip()

    def test_01_server(self) -> None:
        """The server runs at milan, and a pod of rome fills it by its service."""
        self.begin()
        script = f"exec redis-server {OPEN} --appendonly yes --appendfsync always"
        main = container(script, port=PORT, volumeMounts=MOUNTS)
        spec = pod_spec(main, VIRTUAL, **of_database())
        self.home.apply(workload("StatefulSet", SERVER, spec, volumeClaimTemplates=[claim("data")]))
        address = self.serve(SERVER, PORT)
        self.home.apply(bare_pod(FAR, pod_spec(container("sleep 100000"), VIRTUAL)))
        self.at_milan(SERVER)
        self.at_milan(FAR)
        replica = f"exec redis-server {OPEN} --replicaof {address} {PORT}"
        main = container(replica, port=PORT, volumeMounts=MOUNTS)
        spec = pod_spec(main, self.at_home, **of_database(volumes=[{"name": "data", "emptyDir": {}}]))
        self.home.apply(bare_pod(REPLICA, spec))
        self.at_rome(REPLICA)
        filled = self.run_in(REPLICA, "sh", "-c", FILL, address, timeout=LONG)
        self.assertEqual(int(filled), COUNT)

    def test_02_clients_of_both_clusters(self) -> None:
        """All of it is read by a pod beside the server, by the same address."""
        self.assertEqual(int(self.run_in(FAR, "sh", "-c", READ, self.address, timeout=LONG)), COUNT)

    def test_03_replica(self) -> None:
        """The replica at rome has what the server has, and sees a message that is published at milan."""
        eventually("the replica is up", lambda: "master_link_status:up" in self.cli(REPLICA, "info", "replication"))
        eventually("the replica has it all", lambda: self.cli(REPLICA, "dbsize").endswith(str(COUNT)))
        self.assertEqual(self.cli(REPLICA, "get", f"key:{COUNT}"), f"value:{COUNT}")
        listen = "timeout 60 redis-cli subscribe news > /tmp/news 2>&1 &"
        self.run_in(REPLICA, "sh", "-c", listen)

        def arrived() -> bool:
            self.cli(FAR, "publish", "news", "of milan", address=self.address)
            return "of milan" in self.run_in(REPLICA, "cat", "/tmp/news")

        eventually("the message", arrived)

    def test_04_kept(self) -> None:
        """A server whose pod is deleted comes back with its volume, and the replica follows it again."""
        before = self.uids(SERVER)
        self.drop(f"pod/{SERVER}-0")
        eventually("another pod", lambda: self.uids(SERVER) not in ({}, before))
        self.at_milan(SERVER)
        eventually("the server answers", lambda: self.cli(f"{SERVER}-0", "dbsize").endswith(str(COUNT)), LONG)
        self.cli(f"{SERVER}-0", "set", "last", "of all")
        eventually("the replica follows", lambda: self.cli(REPLICA, "get", "last") == "of all", LONG)

    def test_05_gone(self) -> None:
        """What is deleted at rome is gone at milan."""
        self.drop(f"statefulset/{SERVER}", f"pod/{FAR}", f"pvc/data-{SERVER}-0")
        eventually("the pods are gone", lambda: not self.uids(SERVER) and not self.uids(FAR))
        left = partial(self.lender.get, "pvc", "-n", self.remote())
        eventually("no claim is left", lambda: not left()["items"], LONG)
