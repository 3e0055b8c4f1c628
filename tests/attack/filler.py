"""Fills what an API server stores until it is refused: ``python -m tests.attack.filler FILE``; prints JSON of it.

FILE is JSON: ``host``, ``port`` and ``path`` of the API server's collection, or of an object that is patched;
``token``, or ``certificate`` (a PEM file with key and certificate); ``kind`` of what is sent, ``labels`` that it has,
``size`` of each in bytes, ``pause`` between two. It ends after ``most`` of them, after ``seconds``, or when
``REFUSALS`` in a row were refused. It prints ``made``, ``sent`` bytes, ``refused``, ``code`` and ``message`` of the
last refusal, and ``stopped``: refusals ended it.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import sys
import time
from pathlib import Path
from typing import Any, Final

REFUSALS: Final = 10
"""Refusals in a row, a tenth of a second apart, that end it: a bound takes a moment to be known."""
TOGETHER: Final = 125
"""Bytes that one endpoint of a slice takes, about."""


def content(kind: str, size: int, labels: dict[str, str], number: int) -> dict[str, Any]:
    """Return an object of about so many bytes; each is another one."""
    text = base64.b64encode(os.urandom(size * 3 // 4)).decode()
    metadata: dict[str, Any] = {"generateName": "fill-", "labels": labels}
    body: dict[str, Any]
    if kind == "secrets":
        return {"metadata": metadata, "data": {"a": text}}
    if kind == "configmaps":
        return {"metadata": metadata, "data": {"a": text}}
    if kind == "shadowpods":
        container = {"name": "main", "image": "localhost/busybox:1", "args": [text]}
        # Its pod is stored as well, and runs nowhere.
        spec = {"containers": [container], "nodeSelector": {"no": "where"}}
        body = {"metadata": metadata, "spec": {"pod": spec}}
        return {"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod", **body}
    if kind == "slices":
        addresses = (f"198.51.{one // 250 % 250}.{one % 250 + 1}" for one in range(size // TOGETHER))
        endpoints = [{"addresses": [one], "zone": text[:60], "hostname": f"h{number}"} for one in addresses]
        template = {"addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 80, "protocol": "TCP"}]}
        body = {"metadata": metadata, "spec": {"template": template}}
        return {"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowEndpointSlice", **body}
    if kind == "events":
        return {
            "metadata": {"generateName": "fill-"},
            "involvedObject": {"kind": "Pod", "apiVersion": "v1", **labels},
            "reason": f"Fill{number}",
            "message": text[:1000],
            "type": "Warning",
            "source": {"component": "kubelet"},
        }
    if kind == "rewrites":
        return {"data": {"a": text}}
    # A status of a pod, as its lender writes it.
    return {"status": {"message": text}}


def fill(task: dict[str, Any]) -> dict[str, Any]:
    """Fill until it ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if task.get("certificate"):
        context.load_cert_chain(task["certificate"])
    is_patch = task["kind"] in ("status", "rewrites")
    headers = {"Content-Type": "application/merge-patch+json" if is_patch else "application/json"}
    if task.get("token"):
        headers["Authorization"] = f"Bearer {task['token']}"
    asking = http.client.HTTPSConnection(task["host"], task["port"], context=context, timeout=30)
    end = time.monotonic() + task["seconds"]
    made = sent = refused = in_a_row = code = 0
    message = ""
    while made < task["most"] and time.monotonic() < end and in_a_row < REFUSALS:
        body = json.dumps(content(task["kind"], task["size"], task["labels"], made))
        asking.request("PATCH" if is_patch else "POST", task["path"], body, headers)
        answer = asking.getresponse()
        said = answer.read()
        if answer.status < 300:
            made, sent, in_a_row = made + 1, sent + len(body), 0
        else:
            refused, in_a_row, code = refused + 1, in_a_row + 1, answer.status
            message = _message(said)
            time.sleep(0.1)
        time.sleep(task["pause"])
    stopped = in_a_row >= REFUSALS
    return {"made": made, "sent": sent, "refused": refused, "stopped": stopped, "code": code, "message": message}


def _message(said: bytes) -> str:
    try:
        return str(json.loads(said).get("message", ""))[:500]
    except (ValueError, AttributeError):
        return said[:500].decode(errors="replace")


if __name__ == "__main__":
    print(json.dumps(fill(json.loads(Path(sys.argv[1]).read_text()))))
