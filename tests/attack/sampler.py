"""Asks for a page again and again: ``python -m tests.attack.sampler FILE``; prints a line of JSON for each answer.

FILE is JSON: ``host``, ``port``, ``path``; ``tls``, and with it ``certificate``, the path of a PEM file with key and
certificate; ``pause`` between two requests and ``seconds`` in all. Each line has ``took``, in seconds, and ``code``, 0
where there was no answer.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import time
from pathlib import Path
from typing import Any

LIMIT = 10.0
"""Seconds after which a request counts as one without an answer."""


def connection(task: dict[str, Any]) -> http.client.HTTPConnection:
    """Return a connection that is made at the first request."""
    if not task.get("tls"):
        return http.client.HTTPConnection(task["host"], task["port"], timeout=LIMIT)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    if task.get("certificate"):
        context.load_cert_chain(task["certificate"])
    return http.client.HTTPSConnection(task["host"], task["port"], context=context, timeout=LIMIT)


def sample(task: dict[str, Any]) -> None:
    """Ask until the time is over; one connection is used for as long as it lives."""
    end = time.monotonic() + task["seconds"]
    asking = connection(task)
    while time.monotonic() < end:
        begin = time.monotonic()
        try:
            asking.request("GET", task["path"])
            answer = asking.getresponse()
            answer.read()
            code = answer.status
        except (OSError, http.client.HTTPException):
            code = 0
            asking.close()
            asking = connection(task)
        print(json.dumps({"took": time.monotonic() - begin, "code": code}), flush=True)
        time.sleep(task["pause"])


if __name__ == "__main__":
    sample(json.loads(Path(sys.argv[1]).read_text()))
