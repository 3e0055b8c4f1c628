"""A user who never rests: ``python -m tests.real.writer HOST DIRECTORY NAMESPACE`` changes, makes and deletes objects.

One config map is changed again and again, every tenth time a secret is made and the one before the last is deleted.
Ended by SIGTERM it says how many changes it has made. ``DIRECTORY`` has the cluster's CA and its administrator's key.
"""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import sys
import time
from pathlib import Path
from typing import Any

LEDGER = "ledger"
PAUSE = 0.1


def main(host: str, directory: Path, namespace: str) -> None:
    """Write until ended."""
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    context.load_cert_chain(directory / "admin.crt", directory / "admin.key")
    connection = http.client.HTTPSConnection(host, 6443, context=context, timeout=30)

    def ask(method: str, path: str, body: dict[str, Any] | None = None, kind: str = "application/json") -> None:
        text = json.dumps(body) if body is not None else None
        connection.request(method, f"/api/v1/namespaces/{namespace}/{path}", text, {"Content-Type": kind})
        answer = connection.getresponse()
        said = answer.read().decode()
        assert answer.status in (200, 201), said

    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    ask("POST", "configmaps", {"metadata": {"name": LEDGER}, "data": {"n": "0"}})
    number = 0
    while not ended:
        number += 1
        ask("PATCH", f"configmaps/{LEDGER}", {"data": {"n": str(number)}}, "application/merge-patch+json")
        if number % 10 == 0:
            ask("POST", "secrets", {"metadata": {"name": f"page-{number // 10}"}, "stringData": {"n": str(number)}})
        if number % 10 == 0 and number > 20:
            ask("DELETE", f"secrets/page-{number // 10 - 2}")
        time.sleep(PAUSE)
    print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
