"""The API relay on two real clusters with API servers that nobody outside can reach; and what borrowers are denied."""

from __future__ import annotations

import base64
import json
import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from liqod.hosting.tenants.grants import security_labels
from liqod.hosting.tenants.rights import BORROWER_ROLE, user_of
from liqod.model.names import remote_namespace, tenant_namespace
from tests.real.daemons import Daemon
from tests.real.manifests import pod
from tests.real.pair import PairTests
from tests.real.path import NAMESPACE, enabled_namespace, eventually, is_running, node_ready, peer_of, trust_each_other
from tests.real.trespass import requests
from tests.testbed import versions
from tests.testbed.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
RELAY = '\n[peering]\napi = "relay"\n'
WALL = "add table inet wall; add chain inet wall in { type filter hook input priority 0; }; "
WALL += 'add rule inet wall in iifname "eth0" tcp dport 6443 counter drop'
METRICS = "http://127.0.0.1:5874/metrics"
USED = ["/apis/metrics.k8s.io/v1beta1", "pods", True, ["list"]]
"""A kind that a borrower may ask for although no API server here has it."""
VIRTUAL = {"nodeSelector": {"liqo.io/type": "virtual-node"}}
# What every user may ask about itself, a borrower's account among them (ClusterRole system:basic-user).
OWN = ("selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews")


class RelayTests(PairTests):
    """Steps in the order of their numbers."""

    configuration = RELAY
    shape: ClassVar[dict[str, Any]] = {"audit": True}

    def kubectl(self, *args: str, input: str | None = None, timeout: float = 120.0) -> str:
        """Use rome as a user would."""
        return self.rome.cluster.kubectl("-n", NAMESPACE, *args, input=input, timeout=timeout)

    def wall(self, cluster: Cluster, *, up: bool) -> None:
        """Let nobody outside reach an API server, or let them again."""
        cluster.run(["nft", WALL] if up else ["nft", "delete", "table", "inet", "wall"])

    def api_by(self, daemon: Daemon, peer: str) -> str:
        """Return how a daemon reaches the API server of its peer, as ``liqodctl status`` tells."""
        rows = json.loads(daemon.liqodctl("status", "--output=json"))["peers"]
        return str(next(row["api"] for row in rows if row["name"] == peer))

    def reaches(self, daemon: Daemon, peer: str, way: str) -> bool:
        """Tell whether the virtual node is Ready and reached by a way."""
        return node_ready(daemon.cluster) is not None and self.api_by(daemon, peer) == way

    def streams(self, port: int) -> int:
        """Return the number of connections from rome's host to a port of milan's."""
        there = f"{self.milan.cluster.address}:{port}"
        return len(self.rome.cluster.run(["ss", "-Htn", "state", "established", "dst", there]).splitlines())

    def runs(self, name: str) -> bool:
        """Tell whether a pod of rome's runs."""
        return is_running(self.rome.cluster.get("pod", name, "-n", NAMESPACE))

    def follow(self, name: str) -> Any:
        """Begin to follow a log."""
        argv = [str(versions.program("kubectl")), f"--kubeconfig={self.rome.cluster.kubeconfig}", "-n", NAMESPACE]
        return self.rome.cluster.spawn(f"follow-{name}", [*argv, "logs", "-f", name])

    def test_01_peers_without_reachable_api_servers(self) -> None:
        """With both API servers behind a wall two clusters peer, and status tells that the relay is in use."""
        for daemon in (self.rome, self.milan):
            self.wall(daemon.cluster, up=True)
        trust_each_other(self.rome, self.milan)
        for daemon, peer in ((self.rome, "milan"), (self.milan, "rome")):
            eventually(f"{daemon.name} is peered", partial(self.reaches, daemon, peer, "relay"), 120)
            shown = partial(peer_of, daemon.cluster, peer)
            eventually("its record says so", lambda shown=shown: shown()["status"].get("api") == "relay")  # type: ignore[misc]
        secret = self.rome.cluster.get("secret", "liqo-credential", "-n", tenant_namespace(self.milan_id))
        self.assertEqual(secret["data"]["token"], "", "no token leaves a lender that offers only the relay")

    @property
    def milan_id(self) -> Any:
        return peer_of(self.rome.cluster, "milan")["metadata"]["name"]

    @property
    def rome_id(self) -> Any:
        return peer_of(self.milan.cluster, "rome")["metadata"]["name"]

    def test_02_pods(self) -> None:
        """Pods, a config map and their status pass; a watch carries each change of the lender's back."""
        self.rome.cluster.apply(enabled_namespace())
        data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greeting", "namespace": NAMESPACE}}
        self.rome.cluster.apply({**data, "data": {"text": "good day"}})
        script = "trap 'exit 0' TERM; cat /etc/greeting/text; echo; while :; do echo tick; sleep 1; done"
        body = pod("speaker", ["sh", "-c", script], namespace=NAMESPACE, **VIRTUAL)
        body["spec"]["volumes"] = [{"name": "greeting", "configMap": {"name": "greeting"}}]
        body["spec"]["containers"][0]["volumeMounts"] = [{"name": "greeting", "mountPath": "/etc/greeting"}]
        web = pod("web", ["sh", "-c", "exec httpd -f -p 8080 -h /www"], namespace=NAMESPACE, **VIRTUAL)
        listener = pod("echo", ["cat"], namespace=NAMESPACE, **VIRTUAL)
        listener["spec"]["containers"][0].update(stdin=True, stdinOnce=True)
        listener["spec"]["restartPolicy"] = "Never"
        self.rome.cluster.apply(body, web, listener)
        for name in ("speaker", "web", "echo"):
            eventually(f"{name} runs", partial(self.runs, name))
        self.assertEqual(self.streams(6443), 0)
        self.assertGreater(self.streams(5872), 0)

    def test_03_logs_and_shells(self) -> None:
        """``kubectl logs -f``, ``port-forward``, ``exec`` and ``attach`` with input pass two daemons and the relay,
        by websockets and by SPDY.
        """
        eventually("a log", lambda: "good day" in self.kubectl("logs", "speaker"))
        following = self.follow("speaker")
        try:
            eventually("lines as they come", lambda: following.log.read_text().count("tick") > 2)
        finally:
            following.stop(5.0)
        text = "one line\n" * 20000
        argv = [str(versions.program("kubectl")), f"--kubeconfig={self.rome.cluster.kubeconfig}", "-n", NAMESPACE]
        for websockets in ("true", "false"):
            by = ["env", f"KUBECTL_REMOTE_COMMAND_WEBSOCKETS={websockets}", *argv]
            said = self.rome.cluster.run([*by, "exec", "-i", "speaker", "--", "cat"], input=text, timeout=120)
            self.assertEqual(said, text)
        self.assertIn("to and fro\n", self.kubectl("attach", "-i", "echo", input="to and fro\n"))
        forwarding = self.rome.cluster.spawn("port-forward", [*argv, "port-forward", "pod/web", "18080:8080"])
        try:
            fetch = ["busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:18080/"]
            for _ in range(3):
                self.assertEqual(eventually("an answer", lambda: self.rome.cluster.run(fetch)), "hello\n")
        finally:
            forwarding.stop(5.0)

    def test_040_denied(self) -> None:
        """Over the relay, each verb on each kind of milan's API server is denied to rome outside of its namespaces.

        The relay refuses all of it by itself: it is counted, logged without filling the log, and comes no further.
        """
        before = self.refused("RelayDenied", "RelayBadRequest")
        done = self.trespass({}, self.relay_identity())
        print("relay:", done)
        self.assertGreaterEqual(self.refused("RelayDenied", "RelayBadRequest") - before, done["tried"])
        reported = self.milan.log.read_text().count(f"refused {self.rome_id}: Relay")
        self.assertGreater(reported, 0)
        self.assertLess(reported, done["tried"] / 100)
        reached = {event["objectRef"].get("namespace", "") for event in self.impersonated() if "objectRef" in event}
        own = {remote_namespace(NAMESPACE, self.rome_id), tenant_namespace(self.rome_id)}
        self.assertTrue(reached)
        self.assertLessEqual(reached, own)

    def test_041_denied_behind_the_relay(self) -> None:
        """What the relay lets pass and RBAC does not is in milan's audit log with rome's account, and counted."""
        milan, own = self.milan.cluster, remote_namespace(NAMESPACE, self.rome_id)
        role = milan.get("clusterrole", BORROWER_ROLE)
        fewer = [rule for rule in role["rules"] if rule["apiGroups"] != ["metrics.k8s.io"]]
        self.assertLess(len(fewer), len(role["rules"]))
        task = {**self.task({}, self.relay_identity()), "kinds": [USED], "namespaces": [own]}
        # The second request is the one across all namespaces, at which the relay stops.
        self.assertEqual(self.try_all(task)["codes"], {"404": 1, "403": 1})
        before = self.refused("RelayForbidden")
        milan.apply({**bare(role), "rules": fewer})
        try:
            eventually("RBAC denies it", lambda: self.try_all(task)["codes"] == {"403": 2})
        finally:
            milan.apply(bare(role))
        self.assertGreater(self.refused("RelayForbidden"), before)

        def noted() -> list[dict[str, Any]]:
            wanted = {"resource": "pods", "namespace": own, "apiGroup": "metrics.k8s.io", "apiVersion": "v1beta1"}
            return [e for e in self.impersonated() if e.get("objectRef") == wanted and code_of(e) == 403]

        event = eventually("the audit log has it", noted)[0]
        self.assertEqual(event["verb"], "list")
        self.assertEqual(event["impersonatedUser"]["username"], user_of(self.rome_id))
        self.assertEqual(event["annotations"]["authorization.k8s.io/decision"], "forbid")
        self.assertIn("liqod", event["user"]["username"])

    def test_05_distrust_cuts_at_once(self) -> None:
        """When milan distrusts rome, the log that is followed ends and no connection to the relay stays."""
        following = self.follow("speaker")
        eventually("the log is followed", lambda: "tick" in following.log.read_text())
        program = str(Path(sys.executable).with_name("liqodctl"))
        words = ["distrust", "rome", "--yes", f"--kubeconfig={self.milan.cluster.kubeconfig}"]
        begin = time.monotonic()
        distrusting = self.milan.cluster.spawn("distrust", [program, *words])
        eventually("the log ends", lambda: not following.running, 60, 0.05)
        print(f"cut {time.monotonic() - begin:.1f} s after the command was begun")
        eventually("the command ends", lambda: not distrusting.running)
        eventually("no connection stays", lambda: self.streams(5872) == 0)

    def test_06_direct_when_it_can_be(self) -> None:
        """Without a wall, and with api = auto, the same peers reach each other directly."""
        for daemon in (self.rome, self.milan):
            daemon.stop()
            self.wall(daemon.cluster, up=False)
            daemon.config.write_text(daemon.config.read_text().replace(RELAY, '\n[peering]\napi = "auto"\n'))
            daemon.start()
        self.milan.liqodctl("trust", "rome", "--yes")
        eventually("rome reaches milan directly", partial(self.reaches, self.rome, "milan", "direct"), 120)

    def test_07_denied_directly(self) -> None:
        """With its token, too, rome is denied each verb on each kind outside of its namespaces, and all is audited."""
        secret = self.rome.cluster.get("secret", "liqo-credential", "-n", tenant_namespace(self.milan_id))
        token = base64.b64decode(secret["data"]["token"]).decode()
        headers = {"Authorization": f"Bearer {token}", "User-Agent": "trespass"}
        print("direct:", self.trespass(headers, ""))
        task = self.task(headers, "")
        sent = {
            path
            for base, plural, namespaced, verbs in task["kinds"]
            for _, path in requests(base, plural, namespaced, verbs, task["namespaces"])
        }

        def denied() -> dict[str, dict[str, Any]]:
            """Return what milan noted of it, once there is something of each request."""
            found = {e["requestURI"]: e for e in self.milan.cluster.audited() if e.get("userAgent") == "trespass"}
            self.assertLessEqual(sent, found.keys())
            return {path: found[path] for path in sent}

        events = eventually("the audit log has all", denied)
        self.assertEqual({code_of(event) for event in events.values()}, {403})
        self.assertEqual({event["user"]["username"] for event in events.values()}, {user_of(self.rome_id)})
        one = events["/api/v1/namespaces/liqo-system/secrets"]
        self.assertEqual(one["objectRef"], {"resource": "secrets", "namespace": "liqo-system", "apiVersion": "v1"})
        self.assertEqual(one["verb"], "list")

    def test_08_over_to_the_relay(self) -> None:
        """A wall that appears makes rome go over to the relay by itself."""
        self.wall(self.milan.cluster, up=True)
        eventually("rome goes over to the relay", partial(self.reaches, self.rome, "milan", "relay"), 120)

    def test_09_log(self) -> None:
        """All of this is ordinary: no daemon logged a failure of its own."""
        for daemon in (self.rome, self.milan):
            self.assertNotIn("Traceback", daemon.log.read_text())

    def relay_identity(self) -> str:
        """Return a file with the key that rome's daemon has."""
        secret = self.rome.cluster.get("secret", "liqod-identity", "-n", "liqo-system")["data"]
        file = self.rome.directory / "identity.pem"
        file.write_bytes(b"".join(base64.b64decode(secret[part]) for part in ("tls.key", "tls.crt")))
        return str(file)

    def impersonated(self) -> list[dict[str, Any]]:
        """Return what milan's API server noted about requests that its daemon sent on for rome."""
        events, user = self.milan.cluster.audited(), user_of(self.rome_id)
        return [event for event in events if event.get("impersonatedUser", {}).get("username") == user]

    def refused(self, *reasons: str) -> int:
        """Return how often milan's daemon has refused something, by its own count."""
        found = 0
        for line in self.milan.cluster.run(["curl", "-s", METRICS]).splitlines():
            if match := re.fullmatch(r'liqod_refusals_total\{reason="(\w+)"\} ([0-9.]+)', line):
                found += int(float(match[2])) if match[1] in reasons else 0
        return found

    def task(self, headers: dict[str, str], certificate: str) -> dict[str, Any]:
        """Return what ``tests.real.trespass`` is to try: every verb of every kind in namespaces not rome's."""
        milan = self.milan.cluster
        return {
            "host": milan.address,
            "port": 5872 if certificate else 6443,
            "headers": headers,
            "certificate": certificate,
            "kinds": kinds(milan),
            "namespaces": [
                "kube-system",
                "liqo-system",
                "shop-venice",
                tenant_namespace("venice"),
            ],
        }

    def try_all(self, task: dict[str, Any]) -> dict[str, Any]:
        """Send all requests of a task from rome's host."""
        file = self.rome.directory / "trespass.json"
        file.write_text(json.dumps(task))
        argv = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.real.trespass", str(file)]
        done: dict[str, Any] = json.loads(self.rome.cluster.run(argv, timeout=300))
        return done

    def trespass(self, headers: dict[str, str], certificate: str) -> dict[str, Any]:
        """Try every verb of every kind in namespaces that are not rome's, and across all; nothing may be let in."""
        other = {"liqo.io/remote-cluster-id": "venice", **security_labels("baseline")}
        for name in ("shop-venice", tenant_namespace("venice")):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": other}}
            self.milan.cluster.apply(body)
        task = self.task(headers, certificate)

        def at_home() -> bool:
            """Tell whether the very same caller is let in where it belongs: it is not denied for being unknown."""
            pods = ["/api/v1", "pods", True, ["get", "list"]]
            own = remote_namespace(NAMESPACE, self.rome_id)
            codes = self.try_all({**task, "kinds": [pods], "namespaces": [own]})["codes"]
            self.assertEqual(codes, {"404": 1, "200": 1, "403": 1})
            return True

        eventually("the borrower is let in where it belongs", at_home)
        done = self.try_all(task)
        self.assertEqual(done["let_in"], [])
        self.assertGreater(done["tried"], 1000)
        return done


def code_of(event: dict[str, Any]) -> int:
    """Return the code that a request of an audit log was answered with, 0 for none."""
    return int(event.get("responseStatus", {}).get("code", 0))


def bare(body: dict[str, Any]) -> dict[str, Any]:
    """Return an object as it would be written down."""
    return {key: body[key] for key in body if key != "metadata"} | {"metadata": {"name": body["metadata"]["name"]}}


def kinds(cluster: Cluster) -> list[list[Any]]:
    """Return every kind that an API server serves: the path of its group and version, plural, scope, verbs."""
    bases = ["/api/v1"]
    for group in json.loads(cluster.kubectl("get", "--raw=/apis"))["groups"]:
        bases += [f"/apis/{version['groupVersion']}" for version in group["versions"]]
    found = []
    for base in bases:
        served = json.loads(cluster.kubectl("get", f"--raw={base}"))["resources"]
        found += [[base, kind["name"], kind["namespaced"], kind["verbs"]] for kind in served if kind["name"] not in OWN]
    return found
