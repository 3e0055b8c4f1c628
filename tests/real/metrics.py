"""The resource metrics API of a cluster: ``python -m tests.real.metrics KUBECONFIG PORT CERT KEY``.

What metrics-server does, in small: each request asks the kubelet of every real node for its summary and answers with
``metrics.k8s.io/v1beta1``. CPU is the kubelet's own rate; a container that has none yet uses nothing.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.testbed import versions
from tests.testbed.cluster import Cluster
from tests.testbed.process import Process

GROUP = "metrics.k8s.io"
VERSION = f"{GROUP}/v1beta1"
PORT = 4443
_CHECKOUT = Path(__file__).resolve().parents[2]


def start(cluster: Cluster) -> Process:
    """Serve the metrics of a cluster, and have its API server pass requests for them on."""
    d = cluster.directory
    argv = [sys.executable, "-m", "tests.real.metrics", str(cluster.kubeconfig), str(PORT)]
    argv += [str(d / "apiserver.crt"), str(d / "apiserver.key")]
    process = cluster.spawn("metrics", ["env", f"PYTHONPATH={_CHECKOUT}", *argv])
    place = {"name": "metrics", "namespace": "kube-system"}
    labels = {"kubernetes.io/service-name": "metrics"}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": {"ports": [{"port": 443, "name": "https"}]}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "metrics", "namespace": "kube-system", "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [cluster.address], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": PORT}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"v1beta1.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": "v1beta1",
                "service": place,
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    )
    return process


def usage(stats: dict[str, Any]) -> dict[str, str]:
    """Return the usage of a container in the form of the metrics API, from the form of a kubelet's summary."""
    cpu, memory = stats.get("cpu") or {}, stats.get("memory") or {}
    return {"cpu": f"{cpu.get('usageNanoCores', 0)}n", "memory": f"{memory.get('workingSetBytes', 0)}"}


def pods(summaries: list[dict[str, Any]], namespace: str) -> list[dict[str, Any]]:
    """Return the metrics of the pods of one namespace, or of all."""
    found = []
    for pod in (pod for summary in summaries for pod in summary.get("pods") or []):
        ref = pod["podRef"]
        if namespace in ("", ref["namespace"]):
            containers = [{"name": one["name"], "usage": usage(one)} for one in pod.get("containers") or []]
            meta = {"name": ref["name"], "namespace": ref["namespace"]}
            found.append({"metadata": meta, "window": "10s", "containers": containers})
    return found


def resources() -> dict[str, Any]:
    """Return what the group has."""
    kinds = [("pods", "PodMetrics", True), ("nodes", "NodeMetrics", False)]
    shown = [{"name": n, "kind": k, "namespaced": own, "verbs": ["get", "list"]} for n, k, own in kinds]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": VERSION, "resources": shown}


def main(kubeconfig: str, port: int, certificate: str, key: str) -> None:
    """Serve until ended."""

    def ask(path: str) -> dict[str, Any]:
        argv = [str(versions.program("kubectl")), f"--kubeconfig={kubeconfig}", "get", f"--raw={path}"]
        answer = subprocess.run(argv, capture_output=True, check=False, timeout=30)
        return dict(json.loads(answer.stdout)) if answer.returncode == 0 else {}

    def summaries() -> list[dict[str, Any]]:
        nodes = [node["metadata"] for node in ask("/api/v1/nodes").get("items", [])]
        real = [meta["name"] for meta in nodes if (meta.get("labels") or {}).get("liqo.io/type") != "virtual-node"]
        return [ask(f"/api/v1/nodes/{name}/proxy/stats/summary") for name in real]

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = self.path.partition("?")[0].strip("/").split("/")
            match parts[3:]:
                case []:
                    body = resources()
                case ["namespaces", namespace, "pods"]:
                    body = {"kind": "PodMetricsList", "apiVersion": VERSION, "items": pods(summaries(), namespace)}
                case ["pods"]:
                    body = {"kind": "PodMetricsList", "apiVersion": VERSION, "items": pods(summaries(), "")}
                case _:
                    self.send_error(404)
                    return
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("", port), Answers)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
