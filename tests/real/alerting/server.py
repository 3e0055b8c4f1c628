"""One Prometheus (Debian's) in the network of one cluster: it scrapes that daemon as docs/monitoring.md says."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import yaml

from tests.packaging.test_monitoring import MONITORING
from tests.real.alerting.rules import configured, hastened
from tests.real.path import eventually
from tests.testbed import process
from tests.testbed.cluster import Cluster
from tests.testbed.process import Process

PACKAGES: Final = {"prometheus": "prometheus"}
"""Beside those of all test clusters."""
METRICS: Final = '\n[metrics]\nlisten = "tcp:5874"\ntls = "own"\nauthentication = "kubernetes"\n'
"""More of a daemon's configuration: its pages, with TLS and for those alone whom the cluster lets get them."""
PORT: Final = 9090
ACCOUNT: Final = "prometheus"
SPACE: Final = "monitoring"


class Prometheus:
    """A Prometheus that watches one cluster; ``start`` gives it an account there, with the right to scrape."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.directory = cluster.directory / "prometheus"
        self._process: Process | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.directory.mkdir(exist_ok=True)
        self._account()
        files = {name: self.directory / name for name in ("token", "ca.crt", "alerts.yaml", "prometheus.yaml")}
        cluster = self.cluster
        files["token"].write_text(cluster.kubectl("create", "token", ACCOUNT, "-n", SPACE, "--duration=8h").strip())
        secret = eventually("the daemon has a certificate", self._secret)
        files["ca.crt"].write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
        rules = hastened(yaml.safe_load((MONITORING / "alerts.yaml").read_text()))
        files["alerts.yaml"].write_text(yaml.safe_dump(rules))
        settings = configured(
            yaml.safe_load((MONITORING / "prometheus.yaml").read_text()),
            f"{cluster.address}:5874",
            token_file=str(files["token"]),
            ca_file=str(files["ca.crt"]),
            rule_file=str(files["alerts.yaml"]),
        )
        files["prometheus.yaml"].write_text(yaml.safe_dump(settings))
        program = shutil.which("prometheus")
        assert program is not None, "Debian's package prometheus is needed"
        self._process = cluster.spawn(
            "prometheus",
            [
                program,
                f"--config.file={files['prometheus.yaml']}",
                f"--storage.tsdb.path={self.directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{PORT}",
                "--log.level=warn",
            ],
        )
        eventually(f"the Prometheus of {cluster.name} answers", lambda: self.ask("targets")["data"]["activeTargets"])

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.stop(5.0)

    def ask(self, what: str) -> dict[str, Any]:
        """Return what ``/api/v1/WHAT`` answers; LookupError while it does not."""
        with ThreadPoolExecutor(1) as inside:  # the network of a thread is its own
            return inside.submit(self._fetched, f"/api/v1/{what}").result()

    def _fetched(self, path: str) -> dict[str, Any]:
        process.enter(self.cluster.namespace)
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise LookupError(f"Prometheus does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise LookupError(f"Prometheus answers {answer.status}")
        found: dict[str, Any] = json.loads(body)
        return found

    def _account(self) -> None:
        """Do what docs/monitoring.md tells the administrator to do."""
        cluster = self.cluster
        cluster.kubectl("apply", "-f", str(MONITORING / "rights.yaml"))
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "liqod-scrape"}
        cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": SPACE}},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "liqod-scrape"},
                "roleRef": role,
                "subjects": [subject],
            },
        )

    def _secret(self) -> dict[str, Any]:
        return dict(self.cluster.get("secret", "liqod-metrics", "-n", "liqo-system"))


def log_of(one: Prometheus) -> str:
    """Return the last lines of its log, for the report of a failure."""
    return process.tail(Path(one.cluster.directory) / "prometheus.log", 20)
