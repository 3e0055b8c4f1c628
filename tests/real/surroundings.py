"""What other people's clusters do to a daemon: tunnels to kubelets, another signer, no authorization, a cloud.

Real API servers and Kubernetes' own controller of clouds. k3s cannot be built here: its API server's way to kubelets is
``tests/testbed/egress.py``, which does what k3s' source says. So do a signer as EKS has one, and the clouds themselves.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tests.real.base import require_built
from tests.real.daemons import Daemon
from tests.real.manifests import pod
from tests.real.pair import PairTests
from tests.real.path import (
    NAMESPACE,
    condition,
    enabled_namespace,
    eventually,
    is_running,
    node_ready,
    trust_each_other,
    virtual_node,
)
from tests.testbed import egress, versions
from tests.testbed.cluster import Cluster
from tests.testbed.process import CommandFailed, tail

ADDRESS: Final = "10.99.0.211"
"""An address that rome's host has for virtual nodes alone."""
PORT: Final = 5875
WEBHOOK_PORT: Final = 5873
INTERNAL: Final = f'\n[kubelet]\nnode-address = "{ADDRESS}"\nnode-address-type = "InternalIP"\n'
SIGNER: Final = "clouds.example.com/app-serving"
SERVICE: Final = "liqod-webhook"
SYSTEM: Final = "liqo-system"
CONTROLLER: Final = "cloud-lifecycle"
CLOUDS: Final = ("gce", "hcloud", "azure")
LONG: Final = 240.0
OPEN: Final = "the API server lets everybody do everything (AlwaysAllow)"
ADMISSION: Final = "apiserver_admission_webhook"
_SHOWN: Final = """
import ssl, sys
print(ssl.get_server_certificate((sys.argv[1], int(sys.argv[2]))))
"""


def k3s_node(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a Node as an agent of k3s registers it, but without an agent behind it, and its status."""
    meta = {"name": name, "labels": {"kubernetes.azure.com/managed": "false"}}
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta,
        "spec": {"unschedulable": True, "providerID": f"k3s://{name}"},
    }
    info = {"kubeletVersion": f"v{versions.KUBERNETES}+k3s1", "osImage": "", "architecture": "amd64"}
    return body, {"status": {"nodeInfo": info, "addresses": [{"type": "InternalIP", "address": "10.99.0.212"}]}}


class SurroundingsTests(PairTests):
    """One walk of rome, whose API server has tunnels, and milan, whose API server authorizes everybody; the tests are
    its steps, in the order of their numbers.
    """

    start_daemons = False
    shape: ClassVar[dict[str, Any]] = {"tunnelled": (1,), "authorization": ("Node,RBAC", "AlwaysAllow")}

    def setUp(self) -> None:
        """Build the controller of clouds before the clusters."""
        require_built([CONTROLLER])
        super().setUp()

    @property
    def home(self) -> Cluster:
        return self.rome.cluster

    def kubectl(self, *args: str) -> str:
        return self.home.kubectl("-n", NAMESPACE, *args)

    def runs(self, name: str) -> bool:
        """Tell whether a pod runs and is Ready."""
        return is_running(self.home.get("pod", name, "-n", NAMESPACE))

    def refusal(self, *args: str) -> str:
        """Return what kubectl complains about; a command that works is no refusal."""
        try:
            self.kubectl(*args)
        except CommandFailed as failed:
            return failed.output
        raise LookupError(f"kubectl {' '.join(args)} works")

    def again(self, *changes: tuple[str, str]) -> None:
        """Start rome's daemon again with parts of its configuration exchanged, and with the rights that go with it."""
        self.rome.stop()
        text = self.rome.config.read_text()
        for before, after in changes:
            self.assertEqual(text.count(before), 1, before)
            text = text.replace(before, after)
        self.rome.config.write_text(text)
        self.rome.install()
        self.rome.start()

    def dialled(self, host: str, port: int) -> list[dict[str, Any]]:
        """Return the dials of the API server's proxy to a port."""
        return [one for one in egress.dials(self.home.directory) if one["to"] == f"{host}:{port}"]

    def said(self, daemon: Daemon, *words: str) -> str:
        """Return what ``check`` says of a cluster, in one line."""
        try:
            said = daemon.liqodctl("check", *words, f"--config={daemon.config}")
        except CommandFailed as failed:  # ports of this host, and the like
            said = failed.output
        return " ".join(said.split())

    def test_01_said_before(self) -> None:
        """Before anything is installed ``check --pre`` names k3s with its tunnels, and authorization that is off."""
        body, status = k3s_node("agent")
        self.home.apply(body)
        self.home.kubectl("patch", "node", "agent", "--subresource=status", "--type=merge", "-p", json.dumps(status))
        self.home.run(["ip", "addr", "add", f"{ADDRESS}/24", "dev", "eth0"])
        rome, milan = self.said(self.rome, "--pre"), self.said(self.milan, "--pre")
        self.rome.config.write_text(self.rome.config.read_text() + INTERNAL)
        set_wrong = self.said(self.rome, "--pre")
        self.assertIn(f"is k3s (kubelet version v{versions.KUBERNETES}+k3s1)", rome)
        self.assertIn("✓ k3s: its servers reach kubelets by tunnels of agents", rome)
        self.assertIn("! k3s: its servers reach kubelets by tunnels of agents", set_wrong)
        self.assertIn("the API server asks for rights", rome)
        self.assertIn(OPEN, milan)

    def test_02_internal_address(self) -> None:
        """With an InternalIP the tunnel's table leads to an agent that nobody is: 502 for logs and exec, for ever."""
        self.rome.start()
        self.milan.start()
        # It is said of a cluster that has liqod, too.
        self.assertIn(OPEN, self.said(self.milan))
        self.assertNotIn(OPEN, self.said(self.rome))
        trust_each_other(self.rome, self.milan)
        node = eventually("the virtual node is Ready", partial(node_ready, self.home))
        self.assertEqual(node["status"]["addresses"][0], {"type": "InternalIP", "address": ADDRESS})
        self.home.apply(enabled_namespace())
        script = ["sh", "-c", "trap 'exit 0' TERM; echo hello from $HOSTNAME; while :; do sleep 1; done"]
        own = {"nodeSelector": {"kubernetes.io/hostname": self.home.node_name}}
        self.home.apply(
            pod("speaker", script, namespace=NAMESPACE, nodeSelector={"liqo.io/type": "virtual-node"}),
            pod("neighbour", script, namespace=NAMESPACE, **own),
        )
        for name in ("speaker", "neighbour"):
            eventually(f"{name} runs", partial(self.runs, name))
        # The cluster's own node is an agent, whose tunnel works.
        self.assertEqual(self.kubectl("logs", "neighbour"), "hello from neighbour\n")
        (last, *_) = reversed(self.dialled(self.home.address, 10250))
        self.assertEqual((last["agent"], last["status"]), (self.home.node_name, 200))
        eventually("502", lambda: "code 502" in self.refusal("logs", "speaker"))
        self.assertIn("code 502", self.refusal("exec", "speaker", "--", "true"))
        (last, *_) = reversed(self.dialled(ADDRESS, PORT))
        self.assertEqual((last["agent"], last["status"]), (node["metadata"]["name"], 502))

    def test_03_hostname(self) -> None:
        """With the type that the facts choose, Hostname, logs and exec work, once k3s has forgotten the InternalIP."""
        self.again(('node-address-type = "InternalIP"', ""))
        wanted = [{"type": "Hostname", "address": ADDRESS}]
        eventually("a Hostname", lambda: virtual_node(self.home)["status"]["addresses"] == wanted)
        # What was once in the table stays there until the server starts again.
        eventually("502 still", lambda: "code 502" in self.refusal("logs", "speaker"))
        self.home.start_tunnels()
        eventually("the log", lambda: self.kubectl("logs", "speaker") == "hello from speaker\n")
        self.assertEqual(self.kubectl("exec", "speaker", "--", "hostname"), "speaker\n")
        (last, *_) = reversed(self.dialled(ADDRESS, PORT))
        self.assertEqual((last["agent"], last["status"]), ("", 200))
        self.assertEqual(self.kubectl("logs", "neighbour"), "hello from neighbour\n")

    def admissions(self) -> tuple[int, int]:
        """Return how many pods the webhook has answered for, and how many were let in without its answer."""
        metrics = self.home.kubectl("get", "--raw=/metrics")

        def count(name: str) -> int:
            lines = re.findall(rf'^{ADMISSION}_{name}{{[^}}]*name="pods\.webhook[^}}]*}} (\d+)', metrics, re.MULTILINE)
            return sum(map(int, lines))

        return count("admission_duration_seconds_count"), count("fail_open_count")

    def admit(self) -> bool:
        """Make a pod that is tried only; return whether the webhook answered for it."""
        before = self.admissions()
        self.home.kubectl("apply", "--dry-run=server", "-f", "-", input=json.dumps(pod("x", [], namespace=NAMESPACE)))
        after = self.admissions()
        return after[0] > before[0] and after[1] == before[1]

    def test_04_webhook_by_url(self) -> None:
        """A webhook by URL is dialled past the proxy, since the API server has no way of its own for "controlplane"."""
        eventually("the webhook answers", self.admit)
        to_webhook = [one for one in egress.dials(self.home.directory) if one["to"].endswith(f":{WEBHOOK_PORT}")]
        self.assertEqual(to_webhook, [])

    def test_05_webhook_by_service(self) -> None:
        """A webhook by Service goes through the proxy, as kubelets do."""
        port = {"name": "webhook", "port": 443, "targetPort": WEBHOOK_PORT}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": SYSTEM}}
        self.home.apply({**body, "spec": {"ports": [port]}})
        address = self.home.get("service", SERVICE, "-n", SYSTEM)["spec"]["clusterIP"]
        self.again(
            ("[kubernetes]\n", f'[kubernetes]\nleader-services = ["{SERVICE}"]\n'),
            ("\n[kubelet]\n", f'\n[webhook]\nservice = "{SYSTEM}/{SERVICE}"\n\n[kubelet]\n'),
        )

        def by_service() -> bool:
            client = self.home.get("mutatingwebhookconfiguration", "liqod")["webhooks"][0]["clientConfig"]
            return bool(client.get("service", {}).get("name") == SERVICE)

        eventually("the configuration names the Service", by_service)
        eventually("the webhook answers", self.admit)
        self.assertIn({"to": f"{address}:443", "agent": "", "status": 200}, self.dialled(address, 443))

    def sign(self) -> list[bytes]:
        """Sign what was asked of the other signer and approved, in the cluster's name, and return the certificates."""
        signed = []
        for request in self.home.get("csr")["items"]:
            status = request.get("status", {})
            approved = any(one["type"] == "Approved" for one in status.get("conditions", []))
            if request["spec"]["signerName"] != SIGNER or not approved or status.get("certificate"):
                continue
            certificate = self.signed(base64.b64decode(request["spec"]["request"]))
            patch = {"status": {"certificate": base64.b64encode(certificate).decode()}}
            name = request["metadata"]["name"]
            words = ("patch", "csr", name, "--subresource=status", "--type=merge", "-p", json.dumps(patch))
            self.home.kubectl(*words)
            signed.append(certificate)
        return signed

    def signed(self, request: bytes) -> bytes:
        """Return a certificate of the cluster's authority for a request."""
        directory = self.home.directory
        wanted = x509.load_pem_x509_csr(request)
        authority = x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())
        key = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), None)
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(
            issuer_name=authority.subject,
            subject_name=wanted.subject,
            public_key=wanted.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(minutes=5),
            not_valid_after=now + timedelta(days=1),
        )
        names = wanted.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        builder = builder.add_extension(names.value, critical=False)
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]

    def shown(self) -> str:
        """Return the certificate that the API of virtual nodes shows."""
        return self.home.run([sys.executable, "-c", _SHOWN, ADDRESS, str(PORT)]).strip()

    def test_06_other_signer(self) -> None:
        """A certificate of another signer, which liqod approves under that signer's name, is what the API server takes.

        Until it is signed the API server refuses logs, as it has an authority for kubelets.
        """
        self.again((f'node-address = "{ADDRESS}"', f'node-address = "{ADDRESS}"\nsigner = "{SIGNER}"'))
        eventually("an unknown authority", lambda: "certificate" in self.refusal("logs", "speaker"))
        # The daemon waits half a minute for a signer, and then an hour: it begins again with one that answers.
        self.rome.stop()
        self.home.kubectl("delete", "certificatesigningrequests", "--all")
        self.rome.start()
        (certificate,) = eventually("an approved request", self.sign)
        eventually("it is shown", lambda: self.shown() == certificate.decode().strip())
        eventually("the log", lambda: self.kubectl("logs", "speaker") == "hello from speaker\n")

    def test_07_clouds(self) -> None:
        """Clouds delete a node that is not ready and that they do not know; a virtual node of a lender that is away is
        left by each of them.
        """
        # The daemon alone is not enough: the pods that run there are seen by milan's API server.
        self.milan.kill()
        self.milan.cluster.lose_control_plane()
        before = virtual_node(self.home)["metadata"]["uid"]
        eventually("it is not Ready", lambda: condition(virtual_node(self.home), "Ready") != "True", LONG)
        for provider in CLOUDS:
            program = str(versions.program(CONTROLLER))
            controller = self.home.spawn(f"cloud-{provider}", [program, str(self.home.kubeconfig), provider])
            try:
                # Two, one after the other: between them the controller has looked at every node.
                for name in ("stranger", "another"):
                    self.home.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
                    eventually(f"{provider} deletes {name}", partial(self.is_gone, name))
            finally:
                controller.stop(5.0)
            log = tail(controller.log, 400)
            self.assertEqual(virtual_node(self.home)["metadata"]["uid"], before, log)
            self.assertNotIn("deleting node since it is no longer present in cloud provider: liqo-", log)
            self.assertEqual("error checking if node liqo-milan exists" in log, provider != "azure", log)

    def is_gone(self, name: str) -> bool:
        """Tell whether there is no such node."""
        with contextlib.suppress(LookupError):
            return name not in {one["metadata"]["name"] for one in self.home.get("nodes")["items"]}
        return False

    def test_08_log(self) -> None:
        """All of this is ordinary: rome's daemon logged no failure of its own."""
        self.assertNotIn("Traceback", self.rome.log.read_text())
