"""Offloaded pods and their home API server without a tunnel: streams of the daemons, for two tenants of one lender."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from liqod.kubelet.tokens.api_service import NAME
from liqod.model.names import HOME_API, tenant_namespace
from liqod.peering.relay.splice.limits import FIRST_BYTE, PER_POD
from tests.real.lenders import LendersTests
from tests.real.manifests import pod
from tests.real.path import NAMESPACE, enabled_namespace, eventually, node_ready, peer_of, trust_each_other
from tests.real.test_home_api import ACCOUNT, NAMES, put_kubectl, rights
from tests.testbed.cluster import Cluster
from tests.testbed.process import CommandFailed

PORT: Final = 5869
HOMES: Final = ("rome", "paris")
KEPT: Final = 2
"""Idle streams that rome grants; milan asks for more."""
SLEEP: Final = ["sh", "-c", "sleep 100000"]
STRANGER: Final = "stranger"
PODS: Final = "get pods -o name"
GRACE: Final = 60
"""Seconds for which the callers outlive their end: a connection that ends before was not ended with its pod."""
BUILT_IN: Final = (
    "/tmp/kubectl --server=https://{name}:443 --certificate-authority={account}/ca.crt --token=$(cat {account}/token)"
    " --namespace={namespace} get pods -o name"
)
UNVERIFIED: Final = (
    "/tmp/kubectl --server=https://{address}:443 --insecure-skip-tls-verify --request-timeout=10s --token={token}"
    " --namespace={namespace} get pods -o name"
)
SILENT: Final = (
    "(for one in $(seq {count}); do sleep 40 | nc kubernetes.default.svc 443 & done; wait)"
    " >/dev/null 2>&1 </dev/null & sleep 1"
)
"""Opens connections that say nothing."""
WATCH: Final = "(/tmp/kubectl get pods --watch; echo over >/tmp/over) >/tmp/seen 2>&1 </dev/null & sleep 1"


class HomeApiStreamsTests(LendersTests):
    """Rome and paris borrow from milan; nothing but daemons leads from milan's pods to their API servers."""

    @classmethod
    def settings(cls, name: str) -> str:
        """Return what a cluster lends; milan leads pods to streams, of which rome keeps few."""
        listens = f'\nhome-api = "tcp:{PORT}"\n' if name == "milan" else ""
        keeps = f"\n[peering]\napi-streams = {KEPT}\n" if name == "rome" else ""
        return f"{listens}\n[sharing]\npercentage = 80\n{keeps}"

    @property
    def milan(self) -> Cluster:
        """The cluster where the pods run."""
        return self.daemons["milan"].cluster

    def home(self, name: str) -> Cluster:
        """Return the cluster that a tenant's pods are of."""
        return self.daemons[name].cluster

    def remote(self, home: str) -> dict[str, Any]:
        """Return the caller of a home as it is at milan, also while it ends."""
        (found,) = self.milan.get("pods", "-A", "-l", f"app=caller-{home}")["items"]
        return dict(found)

    def runs(self, home: str) -> bool:
        """Tell whether the caller of a home runs at milan."""
        return bool(self.remote(home)["status"].get("phase") == "Running")

    def inside(self, home: str, script: str) -> str:
        """Run a line of shell in the caller of a home."""
        meta = self.remote(home)["metadata"]
        return self.milan.kubectl("exec", "-n", meta["namespace"], meta["name"], "--", "sh", "-c", script)

    def listed(self, home: str, command: str = f"/tmp/kubectl {PODS}") -> list[str]:
        """Return the pods that a command in the caller of a home lists."""
        return sorted(self.inside(home, command).split())

    def own(self, home: str) -> list[str]:
        """Return the pods that a home has in the namespace, one of which milan never sees."""
        return [f"pod/caller-{home}", f"pod/stays-{home}"]

    def is_answered(self, home: str) -> bool:
        """Tell whether the caller of a home gets the pods of its own namespace."""
        self.assertEqual(self.listed(home), self.own(home))
        return True

    def service(self, home: str) -> str:
        """Return the address of the service at milan that leads to a home."""
        space = self.remote(home)["metadata"]["namespace"]
        return str(self.milan.get("service", NAME, "-n", space)["spec"]["clusterIP"])

    def open(self, address: str) -> int:
        """Return how many connections an address has to milan's port of streams."""
        out = self.milan.run(["ss", "-Htn", "state", "established", f"sport = :{PORT}"])
        return sum(1 for line in out.splitlines() if f"{address}:" in line or f"{address}]:" in line)

    def condition(self, home: str) -> dict[str, Any]:
        """Return the condition at a home's record of its virtual node."""
        milan = peer_of(self.home(home), "milan")["metadata"]["name"]
        record = self.home(home).get("virtualnode", milan, "-n", tenant_namespace(milan))
        found = [dict(one) for one in record["status"]["conditions"] if one["type"] == HOME_API]
        return found[0] if found else {}

    def has_streams(self, home: str) -> bool:
        """Tell whether a home says that its pods at milan reach it by streams."""
        found = self.condition(home)
        self.assertEqual((found.get("status"), found.get("reason")), ("True", "Streams"))
        return True

    def log(self) -> str:
        """Return what milan's daemon has said."""
        return self.daemons["milan"].log.read_text(errors="replace")

    def test_01_streams_are_agreed_on(self) -> None:
        """Each home says that its pods will reach it by streams; rome grants fewer than milan asks for."""
        for name in HOMES:
            trust_each_other(self.daemons[name], self.daemons["milan"])
        for name in HOMES:
            eventually(f"{name} has a virtual node", partial(node_ready, self.home(name)))
            eventually(f"{name} keeps streams", partial(self.has_streams, name), 180)
        self.assertIn(f"api-streams allows {KEPT}", self.condition("rome")["message"])
        self.assertNotIn("api-streams", self.condition("paris")["message"])

    def test_02_in_cluster_configuration(self) -> None:
        """kubectl in a pod at milan, with nothing but the in-cluster configuration, gets its own namespace's pods.

        No packet of milan's pods leaves for the homes meanwhile.
        """
        drops = "".join(f"ip daddr {self.home(name).address} drop; " for name in HOMES)
        chain = f"chain pods {{ type filter hook forward priority 0; {drops}}}"
        self.milan.run(["nft", f"table ip walled {{ {chain}; }}"])
        for name in HOMES:
            home = self.home(name)
            home.apply(enabled_namespace(), *rights("pods"))
            eventually("the account", partial(home.get, "serviceaccount", "default", "-n", NAMESPACE))
            caller = pod(
                f"caller-{name}",
                SLEEP,
                namespace=NAMESPACE,
                labels={"app": f"caller-{name}"},
                nodeSelector={"liqo.io/type": "virtual-node"},
                terminationGracePeriodSeconds=GRACE,
            )
            home.apply(caller, pod(f"stays-{name}", SLEEP, namespace=NAMESPACE, schedulerName="nobody"))
        for name in HOMES:
            eventually(f"the pod of {name} runs", partial(self.runs, name))
            put_kubectl(self.milan, self.remote(name))
            eventually(f"{name} answers", partial(self.is_answered, name))
        with self.assertRaises(CommandFailed):
            self.inside("rome", f"nc -w 3 {self.rome.address} 6443 </dev/null")
        with self.assertRaises(CommandFailed) as refused:
            self.inside("rome", "/tmp/kubectl get secrets")
        self.assertIn("Forbidden", refused.exception.output)

    def test_03_by_name_and_port(self) -> None:
        """A program with the name and port built in gets them by each of the four names, with home's certificate."""
        for name in NAMES:
            command = BUILT_IN.format(name=name, account=ACCOUNT, namespace=NAMESPACE)
            self.assertEqual(self.listed("rome", command), self.own("rome"), name)

    def test_04_the_way(self) -> None:
        """The service at milan leads to milan's own daemon, and to nothing of home's."""
        for name in HOMES:
            space = self.remote(name)["metadata"]["namespace"]
            slices = self.milan.get("endpointslices", "-n", space, "-l", f"kubernetes.io/service-name={NAME}")["items"]
            (found,) = [one for one in slices if one["endpoints"]]
            self.assertEqual([one["addresses"] for one in found["endpoints"]], [[self.milan.address]])
            self.assertEqual([one["port"] for one in found["ports"]], [PORT])

    def test_05_another_tenant(self) -> None:
        """A pod of paris that calls rome's service gets to paris, where a token of rome's is worth nothing."""
        address = self.service("rome")
        tokens = {name: self.inside(name, f"cat {ACCOUNT}/token").strip() for name in HOMES}
        commands = {
            name: UNVERIFIED.format(address=address, token=token, namespace=NAMESPACE) for name, token in tokens.items()
        }
        self.assertEqual(self.listed("rome", commands["rome"]), self.own("rome"))
        self.assertEqual(self.listed("paris", commands["paris"]), self.own("paris"))
        with self.assertRaises(CommandFailed) as refused:
            self.inside("paris", commands["rome"])
        self.assertIn("Unauthorized", refused.exception.output)

    def test_06_no_pod_of_a_tenant(self) -> None:
        """A pod of milan's own gets no byte through, with whatever token."""
        self.milan.apply(pod(STRANGER, SLEEP, labels={"app": STRANGER}))
        found = partial(self.milan.get, "pod", STRANGER)
        eventually("it runs", lambda: found()["status"].get("phase") == "Running")
        put_kubectl(self.milan, found())
        token = self.inside("rome", f"cat {ACCOUNT}/token").strip()
        for address in (self.service("rome"), f"{self.milan.address}:{PORT}"):
            command = UNVERIFIED.format(address=address, token=token, namespace=NAMESPACE)
            if address.endswith(f":{PORT}"):
                command = command.replace(f":{PORT}:443", f":{PORT}")
            with self.assertRaises(CommandFailed) as refused:
                self.milan.kubectl("exec", STRANGER, "--", "sh", "-c", command)
            self.assertNotIn("Unauthorized", refused.exception.output)
            self.assertNotIn("caller-", refused.exception.output)
        self.assertEqual(self.open(found()["status"]["podIP"]), 0)
        eventually("it is in the log", lambda: "StreamStranger" in self.log())

    def test_07_daemons_are_killed(self) -> None:
        """Streams end with a daemon, and there are others when it is back: the pod is answered again."""
        for name in ("rome", "milan"):
            self.daemons[name].kill()
            self.daemons[name].start()
            eventually("rome answers", partial(self.is_answered, "rome"), 180)
        eventually("paris answers", partial(self.is_answered, "paris"), 180)

    def test_08_connections_of_one_pod(self) -> None:
        """A pod has so many connections at a time; the next are refused, silent ones end, and others are answered."""
        address = self.remote("rome")["status"]["podIP"]
        self.inside("rome", SILENT.format(count=PER_POD + 10))
        eventually("they are so many", lambda: self.open(address) == PER_POD, FIRST_BYTE)
        self.is_answered("paris")
        # By now those that came last were refused, too: what is accepted is counted before anybody looks at it.
        self.assertLessEqual(self.open(address), PER_POD)
        eventually("silent ones end", lambda: self.open(address) == 0, FIRST_BYTE + 20)
        eventually("rome answers", partial(self.is_answered, "rome"))

    def test_09_the_end_of_trust(self) -> None:
        """When rome trusts milan no more its streams are cut while the pod still runs; those of paris go on."""
        address = self.remote("rome")["status"]["podIP"]
        before = self.remote("rome")["metadata"]
        self.inside("rome", WATCH)
        eventually("it watches", lambda: "caller-rome" in self.inside("rome", "cat /tmp/seen"))
        self.assertGreater(self.open(address), 0)
        self.daemons["rome"].liqodctl("distrust", "milan", "--yes")
        eventually("the watch is over", lambda: "over" in self.inside("rome", "cat /tmp/over"), 30)
        self.assertEqual(self.remote("rome")["metadata"]["uid"], before["uid"])
        eventually("no connection is left", lambda: self.open(address) == 0, 30)
        self.is_answered("paris")
