"""A real control plane on loopback for the contract suite: etcd, API server, controllers, scheduler, kwok nodes.

The programs are those of the testbed; without them the suite is skipped, and fails on continuous integration.
Everything that is started here is stopped by its own process ID.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import datetime
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from kubesandbox.auth.pki import Authority, Leaf

from tests.ports import free_ports
from tests.testbed import versions

NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
_STAGES = pathlib.Path(__file__).parent.parent / "testbed/kwok-stages.yaml"
_LOG = b"2026-01-01T00:00:00.000000000Z stdout F started\n2026-01-01T00:00:01.000000000Z stdout F ready\n"
_KWOK_CONFIG = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {{name: all}}
spec:
  logs:
  - logsFile: {logs}
    follow: false
"""


def missing() -> str:
    """Return why the real server cannot be started here, or an empty text."""
    return versions.lacking(NEEDED)


class RealServer:
    """One control plane; ``start`` blocks until the API server says it is ready (a few seconds)."""

    def __init__(self) -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="liqod-real-"))
        self.authority = Authority.create("contract-ca", datetime.datetime.now(datetime.UTC))
        self.admin = self.authority.client("admin", ["system:masters"])
        self.processes: list[subprocess.Popen[bytes]] = []
        self.url = ""
        self.kubelet_port = 0

    def start(self) -> None:
        atexit.register(self.stop)
        etcd, peer, port, kwok = free_ports(4)
        self.kubelet_port = kwok
        self.url = f"https://127.0.0.1:{port}"
        self._certificates()
        kinds = {
            "kcm": self.authority.client("system:kube-controller-manager"),
            "scheduler": self.authority.client("system:kube-scheduler"),
            "admin": self.admin,
        }
        for name, leaf in kinds.items():
            self._file(f"{name}.conf", json.dumps(self._kubeconfig(leaf)).encode())
        at = self.directory
        self._spawn(
            "etcd",
            f"--data-dir={at}/etcd",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
            "--log-level=error",
        )
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--client-ca-file={at}/ca.crt",
            f"--tls-cert-file={at}/server.crt",
            f"--tls-private-key-file={at}/server.key",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={at}/sa.key",
            f"--service-account-signing-key-file={at}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--allow-privileged=true",
            f"--kubelet-client-certificate={at}/admin.crt",
            f"--kubelet-client-key={at}/admin.key",
            "--kubelet-preferred-address-types=InternalIP",
        )
        self._wait_until_ready()
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={at}/kcm.conf",
            f"--service-account-private-key-file={at}/sa.key",
            f"--root-ca-file={at}/ca.crt",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            f"--secure-port={free_ports(1)[0]}",
        )
        self._spawn(
            "kube-scheduler",
            f"--kubeconfig={at}/scheduler.conf",
            "--leader-elect=false",
            f"--secure-port={free_ports(1)[0]}",
        )
        logs = self._file("pod.log", _LOG)
        config = self._file("kwok.yaml", _KWOK_CONFIG.format(logs=logs).encode())
        self._spawn(
            "kwok",
            f"--kubeconfig={at}/admin.conf",
            f"--config={_STAGES}",
            f"--config={config}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-label-selector=type=simulated",
            "--node-ip=127.0.0.1",
            f"--node-port={kwok}",
            f"--server-address=127.0.0.1:{kwok}",
            f"--tls-cert-file={at}/server.crt",
            f"--tls-private-key-file={at}/server.key",
            "--node-lease-duration-seconds=40",
        )

    def stop(self) -> None:
        """Stop every process that was started here and remove its files; doing it twice is harmless."""
        for process in reversed(self.processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes = []
        shutil.rmtree(self.directory, ignore_errors=True)

    def kubeconfig(self) -> str:
        """Return the administrator's kubeconfig."""
        return json.dumps(self._kubeconfig(self.admin))

    def _certificates(self) -> None:
        server = self.authority.serving("kube-apiserver", ["127.0.0.1", "localhost", "kubernetes.default.svc"])
        signing = rsa.generate_private_key(65537, 2048).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        for name, content in {
            "ca.crt": self.authority.pem,
            "server.crt": server.certificate_pem,
            "server.key": server.key_pem,
            "sa.key": signing,
            "admin.crt": self.admin.certificate_pem,
            "admin.key": self.admin.key_pem,
        }.items():
            self._file(name, content)

    def _file(self, name: str, content: bytes) -> pathlib.Path:
        path = self.directory / name
        path.write_bytes(content)
        path.chmod(0o600)
        return path

    def _spawn(self, name: str, *arguments: str) -> None:
        log = (self.directory / f"{name}.log").open("wb")
        self.processes.append(
            subprocess.Popen(
                [str(versions.program(name)), *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self.directory,
            )
        )

    def _wait_until_ready(self) -> None:
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        context.load_cert_chain(self.directory / "admin.crt", self.directory / "admin.key")
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            with (
                contextlib.suppress(urllib.error.URLError, OSError),
                urllib.request.urlopen(f"{self.url}/readyz", context=context, timeout=5) as answer,
            ):
                if answer.read() == b"ok":
                    return
            time.sleep(0.25)
        tail = (self.directory / "kube-apiserver.log").read_text(errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"the API server was not ready after 90 s: {tail}")

    def _kubeconfig(self, leaf: Leaf) -> dict[str, object]:
        def encode(data: bytes) -> str:
            return base64.b64encode(data).decode()

        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "real",
            "clusters": [
                {
                    "name": "real",
                    "cluster": {"server": self.url, "certificate-authority-data": encode(self.authority.pem)},
                }
            ],
            "users": [
                {
                    "name": "real",
                    "user": {
                        "client-certificate-data": encode(leaf.certificate_pem),
                        "client-key-data": encode(leaf.key_pem),
                    },
                }
            ],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "real"}}],
        }
