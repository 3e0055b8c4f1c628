"""A borrower that tries everything: ``python -m tests.real.trespass FILE``; prints what it tried, and what it got.

FILE is JSON: ``host``, ``port``, ``headers``; ``certificate`` (the path of a PEM file with key and certificate) for the
relay; ``kinds``, a list of (path of the group and version, plural, namespaced, verbs) from the API server's discovery;
``namespaces``. Each verb is really sent, as a dry run where it writes; whatever is not 403 is reported.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
NAMED = ("get", "update", "patch", "delete")


def requests(
    base: str, plural: str, namespaced: bool, verbs: list[str], places: list[str]
) -> Iterator[tuple[str, str]]:
    """Yield method and path of each verb on one kind: in each namespace, and across all of them where that exists."""
    resource, slash, subresource = plural.partition("/")
    for verb in verbs:
        if verb not in METHODS:
            continue
        for place in places if namespaced else [""]:
            where = f"{base}/namespaces/{place}/{resource}" if place else f"{base}/{resource}"
            named = verb in NAMED or bool(slash)
            path = f"{where}/x{slash}{subresource}" if named else where
            query = "?watch=true" if verb == "watch" else "" if METHODS[verb] == "GET" else "?dryRun=All"
            yield METHODS[verb], path + query
        if namespaced and verb in ("list", "watch"):
            yield "GET", f"{base}/{resource}" + ("?watch=true" if verb == "watch" else "")


def try_all(task: dict[str, Any]) -> dict[str, Any]:
    """Send every request; return how many there were, the codes, and those that were not denied."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    if task.get("certificate"):
        context.load_cert_chain(task["certificate"])
    connection = http.client.HTTPSConnection(task["host"], task["port"], context=context, timeout=30)
    codes: Counter[int] = Counter()
    let_in = []
    for base, plural, namespaced, verbs in task["kinds"]:
        for method, path in requests(base, plural, namespaced, verbs, task["namespaces"]):
            body = "{}" if method in ("POST", "PUT", "PATCH") else None
            content = "application/merge-patch+json" if method == "PATCH" else "application/json"
            connection.request(method, path, body, {**task["headers"], "Content-Type": content})
            answer = connection.getresponse()
            codes[answer.status] += 1
            if answer.status != 403:
                let_in.append(f"{method} {path}: {answer.status}")
                connection.close()  # it may be a stream
            else:
                answer.read()
    return {"tried": sum(codes.values()), "codes": dict(codes), "let_in": let_in}


if __name__ == "__main__":
    print(json.dumps(try_all(json.loads(Path(sys.argv[1]).read_text()))))
