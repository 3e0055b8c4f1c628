"""What a pod at the lender asks first is answered, in a namespace that the lender has granted a moment ago."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Final

from tests.real.daemons import HostDaemon
from tests.real.manifests import pod, service, slice_of
from tests.real.pair import PairTests
from tests.real.path import enabled_namespace, eventually, node_ready, trust_each_other
from tests.real.test_network import CONFIGURATION, WEB

TIMES: Final = 20
PORT: Final = 8080
SERVER: Final = "server"
ASKED: Final = {
    "api": "nc -w 30 kubernetes.default.svc 443 </dev/null",
    "name": "nslookup -type=a server.$HOME_NAMESPACE.svc.cluster.local",
    "service": f"printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | nc -w 30 server {PORT} | grep 'hello from the pod'",
}
"""What a pod does first, and once, by the pod's name: a connection to home's API server, a lookup, a call."""


def first(name: str, namespace: str) -> dict[str, Any]:
    """Return a pod that asks once, and ends; how it went is its exit code, and what it got its message."""
    script = f"{{ {ASKED[name]}; }} >/dev/termination-log 2>&1"
    made = pod(name, ["sh", "-c", script], namespace=namespace, restartPolicy="Never")
    made["spec"]["nodeSelector"] = {"liqo.io/type": "virtual-node"}
    made["spec"]["containers"][0]["env"] = [{"name": "HOME_NAMESPACE", "value": namespace}]
    return made


class FirstSecondTests(PairTests):
    """rome borrows from milan, which answers names; each namespace is offloaded when its pods are made."""

    configuration = CONFIGURATION
    shape: ClassVar[dict[str, Any]] = {"dns": True}
    daemon_class = HostDaemon

    def server(self) -> str:
        """Return the address of the server at rome."""
        return str(self.rome.cluster.get("pod", SERVER)["status"].get("podIP", ""))

    def outcome(self, name: str, namespace: str) -> str:
        """Return what came of a pod: "ok", or what it got; empty while it runs."""
        status = self.rome.cluster.get("pod", name, "-n", namespace)["status"]
        if status.get("phase") not in ("Succeeded", "Failed"):
            return ""
        if status["phase"] == "Succeeded":
            return "ok"
        ended = status["containerStatuses"][0]["state"]["terminated"]
        return f"exit {ended['exitCode']}: {ended.get('message', '')}".strip()

    def test_01_peers(self) -> None:
        """The clusters trust each other; a server runs at home."""
        trust_each_other(self.rome, self.milan)
        eventually("the virtual node is Ready", partial(node_ready, self.rome.cluster))
        server = pod(SERVER, ["sh", "-c", WEB])
        self.rome.cluster.apply(server)
        eventually("the server", self.server)

    def test_02_first_requests(self) -> None:
        """Of the pods that ask in their first moment, in one new namespace after the other, none is refused."""
        answers: dict[str, str] = {}
        address = self.server()
        for number in range(TIMES):
            space = f"first-{number}"
            made = enabled_namespace(space)
            there = {key: value for key, value in service(SERVER, {}, PORT, namespace=space).items() if key != "spec"}
            there["spec"] = {"ports": [{"port": PORT, "targetPort": PORT}]}
            self.rome.cluster.apply(made, there, slice_of(SERVER, address, PORT, namespace=space))
            eventually("the account", partial(self.rome.cluster.get, "serviceaccount", "default", "-n", space))
            self.rome.cluster.apply(*(first(name, space) for name in ASKED))
            for name in ASKED:
                answers[f"{space}/{name}"] = eventually("the pod's end", partial(self.outcome, name, space))
        failed = {pod: said for pod, said in answers.items() if said != "ok"}
        self.assertFalse(failed, "\n".join(f"{pod}: {said}" for pod, said in failed.items()))
