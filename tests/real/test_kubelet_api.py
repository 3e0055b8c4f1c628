"""kubectl on virtual nodes: what works on a pod next door works on one in the other cluster."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from liqod.model.names import remote_namespace
from tests.real.manifests import pod
from tests.real.pair import PairTests
from tests.real.path import NAMESPACE, enabled_namespace, eventually, is_running, node_ready, peer_of, trust_each_other
from tests.testbed import versions
from tests.testbed.process import CommandFailed

PORT = 5875
VIRTUAL = {"nodeSelector": {"liqo.io/type": "virtual-node"}}

CALL = """
import http.client, json, ssl, sys
address, port, path, method, token, certificate, ca = json.loads(sys.argv[1])
context = ssl.create_default_context(cafile=ca)
if certificate:
    context.load_cert_chain(*certificate)
connection = http.client.HTTPSConnection(address, port, context=context, timeout=10)
headers = {"Authorization": "Bearer " + token} if token else {}
try:
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    print(answer.status, answer.read().decode())
except OSError as error:
    print("refused", type(error).__name__, error)
"""


class KubectlOnVirtualNodesTests(PairTests):
    """Steps in the order of their numbers."""

    def _kubectl(self, *args: str, input: str | None = None, timeout: float = 120.0) -> str:
        return self.rome.cluster.kubectl("-n", NAMESPACE, *args, input=input, timeout=timeout)

    def _make(self, name: str, script: str, **spec: Any) -> None:
        body = pod(name, ["sh", "-c", script], namespace=NAMESPACE, **VIRTUAL)
        body["spec"]["containers"][0].update(spec.pop("container", {}))
        body["spec"].update(spec)
        self.rome.cluster.apply(body)

    def _wait(self, name: str) -> None:
        eventually(f"{name} runs", lambda: is_running(self.rome.cluster.get("pod", name, "-n", NAMESPACE)))

    def _call(
        self, path: str, *, method: str = "GET", token: str = "", certificate: tuple[Path, Path] | None = None
    ) -> str:
        cluster = self.rome.cluster
        shown = [str(file) for file in certificate] if certificate is not None else None
        asked = [cluster.address, PORT, path, method, token, shown, str(cluster.directory / "ca.crt")]
        return cluster.run([sys.executable, "-c", CALL, json.dumps(asked)])

    def test_01_node(self) -> None:
        """The node says where its API is, and the cluster signed the certificate that is shown there."""
        trust_each_other(self.rome, self.milan)
        node = eventually("the virtual node is Ready", partial(node_ready, self.rome.cluster))
        self.assertEqual(node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], PORT)
        self.assertEqual(node["status"]["addresses"][0], {"type": "InternalIP", "address": self.rome.cluster.address})
        eventually("the certificate is signed", lambda: self._call("/healthz").startswith("401"))
        self.rome.cluster.apply(enabled_namespace())
        hello = "trap 'exit 0' TERM; echo hello from $HOSTNAME; echo and again; while :; do sleep 1; done"
        self._make("speaker", hello)
        self._make("counter", "for i in 1 2 3 4 5; do echo line $i; sleep 1; done", restartPolicy="Never")
        self._make("web", "exec httpd -f -p 8080 -h /www")
        self._make("echo", "exec cat", restartPolicy="Never", container={"stdin": True, "stdinOnce": True})
        self._wait("speaker")

    def test_02_logs(self) -> None:
        """``kubectl logs`` shows the log of the real container, with the options that choose from it."""
        whole = "hello from speaker\nand again\n"
        eventually("the log", lambda: self._kubectl("logs", "speaker") == whole)
        self.assertEqual(self._kubectl("logs", "speaker", "--tail=1"), "and again\n")
        self.assertEqual(self._kubectl("logs", "speaker", "--since=1h"), whole)
        self.assertEqual(self._kubectl("logs", "speaker", "--since-time=2099-01-01T00:00:00Z"), "")
        self.assertRegex(self._kubectl("logs", "speaker", "--timestamps", "--tail=1"), r"^20\d\d-.*Z and again\n$")
        self.assertEqual(self._kubectl("logs", "speaker", "--limit-bytes=5"), "hello")

    def test_03_followed(self) -> None:
        """``kubectl logs -f`` shows lines as they come, and ends with the container."""
        lines = "".join(f"line {number}\n" for number in range(1, 6))
        eventually("the log", lambda: self._kubectl("logs", "-f", "counter") == lines)

    def test_04_exec(self) -> None:
        """``kubectl exec`` runs commands in the container: output, errors, exit code and standard input."""
        self.assertEqual(self._kubectl("exec", "speaker", "--", "hostname"), "speaker\n")
        odd = ["printf", "%s|", "a b", "", "&=?/%", "ü"]
        self.assertEqual(self._kubectl("exec", "speaker", "--", *odd), "a b||&=?/%|ü|")
        with self.assertRaises(CommandFailed) as failed:
            self._kubectl("exec", "speaker", "--", "sh", "-c", "echo no >&2; exit 7")
        self.assertIn("exit code 7", failed.exception.output)
        text = "one line\n" * 20000
        self.assertEqual(self._kubectl("exec", "-i", "speaker", "--", "cat", input=text), text)
        self.assertEqual(self._kubectl("exec", "-i", "speaker", "--", "wc", "-c", input=text).strip(), str(len(text)))

    def test_04_terminal(self) -> None:
        """``kubectl exec -it`` gives a terminal, of the size of one's own."""
        kubectl = f"{versions.program('kubectl')} --kubeconfig={self.rome.cluster.kubeconfig} -n {NAMESPACE}"
        # The size comes after the terminal.
        sized = 'i=0; until [ "$(stty size)" = "31 97" ] || [ $i = 60 ]; do i=$((i+1)); sleep 1; done; tty; stty size'
        inside = f"stty rows 31 cols 97; exec {kubectl} exec -it speaker -- sh -c '{sized}'"
        said = self.rome.cluster.run(["script", "-qec", inside, "/dev/null"], timeout=120)
        self.assertIn("/dev/pts/", said)
        self.assertIn("31 97", said)

    def test_05_much(self) -> None:
        """Twenty megabytes out of a container arrive whole."""
        script = "dd if=/dev/zero bs=1024 count=20480 2>/dev/null | tr '\\0' x"
        self.assertEqual(len(self._kubectl("exec", "speaker", "--", "sh", "-c", script)), 20 << 20)

    def test_06_copy(self) -> None:
        """``kubectl cp`` carries files both ways."""
        there, back = self.rome.directory / "there", self.rome.directory / "back"
        there.write_bytes(bytes(range(256)) * 4096)
        self._kubectl("cp", str(there), "speaker:/tmp/file")
        self._kubectl("cp", "speaker:/tmp/file", str(back))
        self.assertEqual(back.read_bytes(), there.read_bytes())

    def test_07_attach(self) -> None:
        """``kubectl attach -i`` is connected with the container's own standard input and output."""
        self._wait("echo")
        self.assertIn("to and fro\n", self._kubectl("attach", "-i", "echo", input="to and fro\n"))

    def test_08_port_forward(self) -> None:
        """``kubectl port-forward`` leads from a local port to one of the pod, for several connections."""
        self._wait("web")
        cluster = self.rome.cluster
        argv = [str(versions.program("kubectl")), f"--kubeconfig={cluster.kubeconfig}", "-n", NAMESPACE]
        forwarding = cluster.spawn("port-forward", [*argv, "port-forward", "pod/web", "18080:8080"])
        try:
            fetch = ["busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:18080/"]
            for _ in range(3):
                self.assertEqual(eventually("an answer", lambda: cluster.run(fetch)), "hello\n")
        finally:
            forwarding.stop(5.0)

    def test_09_previous(self) -> None:
        """``kubectl logs --previous`` shows the log of the container before its restart."""
        self._kubectl("exec", "speaker", "--", "kill", "-TERM", "1")
        eventually("the log before", lambda: "hello from speaker\n" in self._kubectl("logs", "--previous", "speaker"))

    def test_10_what_the_lender_says(self) -> None:
        """What the lender refuses reaches the user in the lender's words."""
        body = pod("imageless", ["true"], namespace=NAMESPACE, **VIRTUAL)
        body["spec"]["containers"][0]["image"] = "localhost/nothing:1"
        self.rome.cluster.apply(body)

        def said() -> bool:
            try:
                self._kubectl("logs", "imageless")
            except CommandFailed as failed:
                return "waiting to start" in failed.output
            return False

        eventually("the lender's words about the log", said)
        milan = self.milan.cluster
        remote = remote_namespace(NAMESPACE, peer_of(milan, "rome")["metadata"]["name"])
        milan.apply(*_no_shells(remote))

        def refused() -> bool:
            try:
                self._kubectl("exec", "speaker", "--", "true")
            except CommandFailed as failed:
                return "no shells in this house" in failed.output
            return False

        eventually("the lender's words about the shell", refused)
        milan.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "no-shells")
        with self.assertRaises(CommandFailed):
            self._kubectl("logs", "speaker", "-c", "nobody")

    def test_11_callers(self) -> None:
        """Only those get in whom the cluster knows, and who may use the proxy of nodes."""
        rome, milan = self.rome.cluster.directory, self.milan.cluster.directory
        log = f"/containerLogs/{NAMESPACE}/speaker/main"
        exec_ = f"/exec/{NAMESPACE}/speaker/main?command=id&output=1"
        self.assertTrue(self._call(log).startswith("401"))
        self.assertTrue(self._call(exec_, method="POST").startswith("401"))
        self.assertTrue(self._call(log, token="nonsense").startswith("401"))
        good = (rome / "kubelet-client.crt", rome / "kubelet-client.key")
        self.assertIn("hello from speaker", self._call(log, certificate=good))
        self.assertIn(
            "refused", self._call(log, certificate=(milan / "kubelet-client.crt", milan / "kubelet-client.key"))
        )
        nodes = (rome / "kubelet.crt", rome / "kubelet.key")
        answer = self._call(log, certificate=nodes)
        self.assertTrue(answer.startswith("403"), answer)
        self._kubectl("create", "serviceaccount", "watcher")
        token = self._kubectl("create", "token", "watcher").strip()
        self.assertTrue(self._call("/pods", token=token).startswith("403"))
        self.rome.cluster.kubectl(
            "create", "clusterrole", "watch-nodes", "--verb=get", "--resource=nodes/proxy,nodes/metrics"
        )
        self.rome.cluster.kubectl(
            "create",
            "clusterrolebinding",
            "watch-nodes",
            "--clusterrole=watch-nodes",
            f"--serviceaccount={NAMESPACE}:watcher",
        )
        eventually("the right counts", lambda: self._call("/pods", token=token).startswith("200"))
        pods = json.loads(self._call("/pods", token=token).partition(" ")[2])
        self.assertIn("speaker", [one["metadata"]["name"] for one in pods["items"]])
        self.assertTrue(self._call("/metrics/resource", token=token).startswith("200"))
        self.assertTrue(self._call(exec_, method="GET", token=token).startswith("403"))
        self.assertTrue(self._call("/containerLogs/kube-system/no/main", certificate=good).startswith("404"))
        self.assertTrue(self._call("/etc/passwd", certificate=good).startswith("404"))

    def test_12_leaving(self) -> None:
        """A caller that stops following a log leaves nothing behind at the lender."""
        cluster = self.rome.cluster
        argv = [str(versions.program("kubectl")), f"--kubeconfig={cluster.kubeconfig}", "-n", NAMESPACE]
        before = self._open()
        following = cluster.spawn("follow", [*argv, "logs", "-f", "web"])
        opened = eventually("the log is followed", lambda: self._open() - before)
        following.stop(5.0)
        eventually("nothing stays open", lambda: not opened & self._open())

    def test_13_log(self) -> None:
        """All of this is ordinary: no daemon logged a failure of its own."""
        for daemon in (self.rome, self.milan):
            text = daemon.log.read_text()
            self.assertNotIn("Traceback", text)
            self.assertNotIn("failed on this request", text)

    def _open(self) -> set[str]:
        """Return the connections from rome's daemon to milan's API server, by their own ports."""
        there = f"{self.milan.cluster.address}:6443"
        out = self.rome.cluster.run(["ss", "-Htn", "state", "established", "dst", there])
        return {line.split()[2] for line in out.splitlines()}


def _no_shells(namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a policy of the lender's administrator that refuses ``exec`` in one namespace, and its binding."""
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/exec"]}
    version = "admissionregistration.k8s.io/v1"
    policy = {
        "apiVersion": version,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-shells"},
        "spec": {
            "matchConstraints": {**where, "resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "no shells in this house"}],
        },
    }
    binding = {
        "apiVersion": version,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-shells"},
        "spec": {"policyName": "no-shells", "validationActions": ["Deny"]},
    }
    return policy, binding
