"""The pods that ``bench`` runs, and the parsing of their logs. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

from liqod.model.names import REMOTE_CLUSTER_LABEL, TYPE_LABEL, VIRTUAL_NODE_TYPE

PORT: Final = 5001


def server_pod(name: str, image: str, peer: str, megabytes: int) -> dict[str, Any]:
    """Return a pod that serves a page and ``megabytes`` of zeros; at a peer, or locally when ``peer`` is empty."""
    lines = [
        "mkdir -p /tmp/www",
        f"dd if=/dev/zero of=/tmp/www/data bs=1048576 count={megabytes} 2>/dev/null" if megabytes else "",
        f"exec busybox httpd -f -p {PORT} -h /tmp/www",
    ]
    return _pod(name, image, peer, "; ".join(line for line in lines if line), "Always")


def download_pod(name: str, image: str, address: str) -> dict[str, Any]:
    """Return a local pod that downloads the data from an address; it logs uptime, bytes, uptime."""
    # The server listens when its data is written.
    wait = f"until {_request('/none', address)} >/dev/null 2>&1; do sleep 1; done"
    script = f"{wait}; cut -d' ' -f1 /proc/uptime; {_request('/data', address)} | wc -c; cut -d' ' -f1 /proc/uptime"
    return _pod(name, image, "", script)


def ping_pod(name: str, image: str, address: str, count: int) -> dict[str, Any]:
    """Return a local pod that pings an address."""
    return _pod(name, image, "", f"ping -c {count} -W 2 {address}")


def throughput(log: str, megabytes: int) -> float | None:
    """Return the bits per second in the log of a download pod, or None where not all of the data came."""
    found = re.fullmatch(r"\s*([0-9.]+)\s+(\d+)\s+([0-9.]+)\s*", log)
    if found is None or float(found[3]) <= float(found[1]) or int(found[2]) < megabytes << 20:
        return None
    return 8 * int(found[2]) / (float(found[3]) - float(found[1]))


def round_trips(log: str) -> tuple[float, float, float, int] | None:
    """Return minimum, mean, maximum in milliseconds and the percentage lost, from the summary of ping."""
    times = re.search(r"min/avg/max\S* = ([0-9.]+)/([0-9.]+)/([0-9.]+)", log)
    lost = re.search(r"([0-9]+)% packet loss", log)
    if times is None or lost is None:
        return None
    return float(times[1]), float(times[2]), float(times[3]), int(lost[1])


def _request(path: str, address: str) -> str:
    return f"printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' | nc -w 10 {address} {PORT}"


def _pod(name: str, image: str, peer: str, script: str, restart: str = "Never") -> dict[str, Any]:
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    rule = {"key": REMOTE_CLUSTER_LABEL, "operator": "In", "values": [peer]}
    if not peer:
        rule = {"key": TYPE_LABEL, "operator": "NotIn", "values": [VIRTUAL_NODE_TYPE]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    spec = {
        "containers": [container],
        "affinity": affinity,
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
    }
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}
