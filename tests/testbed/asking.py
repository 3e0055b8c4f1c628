"""Read objects of a test cluster without starting kubectl, which costs more than the answer itself.

Tests look again and again until something is so, and on a machine with few processors a program that starts for each
look takes the time of what is looked for. What is not answered at once with success is left to kubectl, whose words
about failures people know. Nothing stays open between two requests: a connection would keep the network alive.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from attrs import define, field, frozen

from tests.testbed import process

_DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_FAILURES: Final = (OSError, http.client.HTTPException, ValueError, LookupError, RuntimeError)
_NAMESPACE, _ALL, _SELECTOR = ("-n", "--namespace"), ("-A", "--all-namespaces"), ("-l", "--selector")


@frozen
class Kind:
    """Where the objects of a kind are: ``base`` is the path of its group and version."""

    base: str
    plural: str
    namespaced: bool


@frozen
class Question:
    """The words behind ``kubectl get`` as far as they are understood here; ``namespace`` is "" for all of them."""

    kind: str
    name: str = ""
    namespace: str = "default"
    selector: str = ""

    def path(self, kind: Kind) -> str:
        """Return the path that is to be asked."""
        parts = [kind.base]
        if kind.namespaced and self.namespace:
            parts += ["namespaces", self.namespace]
        parts += [kind.plural, *([quote(self.name, safe=":")] if self.name else [])]
        return "/".join(parts) + (f"?labelSelector={quote(self.selector)}" if self.selector else "")


def understood(args: Sequence[str]) -> Question | None:
    """Return what the words ask for: one kind, a name or none, one namespace or all, a selector; None for all else."""
    words: list[str] = []
    found = {}
    rest = iter(args)
    for word in rest:
        if word in _ALL:
            found["namespace"] = ""
        elif word in _NAMESPACE or word in _SELECTOR:
            found["namespace" if word in _NAMESPACE else "selector"] = next(rest, "")
        elif word.startswith("-"):
            return None
        else:
            words.append(word)
    plain = 1 <= len(words) <= 2 and words[0] and not any(sign in words[0] for sign in "/,")
    one = len(words) == 2
    if not plain or (one and (not words[1] or "selector" in found or found.get("namespace") == "")):
        return None
    return Question(*words, **found)


def kinds(*discovered: Mapping[str, Any]) -> dict[str, Kind]:
    """Return the kinds by every name that kubectl knows them by, from ``APIGroupDiscoveryList`` objects.

    Of several with the same name the first counts, and a whole name goes before a short one, as with kubectl.
    """
    whole: dict[str, Kind] = {}
    short: dict[str, Kind] = {}
    for group in (group for each in discovered for group in each["items"]):
        name = group["metadata"].get("name", "")
        version = group["versions"][0]
        base = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
        for one in version.get("resources", []):
            kind = Kind(base, one["resource"], one["scope"] == "Namespaced")
            for known in (one["resource"], one.get("singularResource"), f"{one['resource']}.{name}"):
                whole.setdefault(known or one["resource"], kind)
            for known in one.get("shortNames", []):
                short.setdefault(known, kind)
    return short | whole


def as_kubectl(body: dict[str, Any]) -> dict[str, Any]:
    """Return an answer in the form in which kubectl prints it: a list tells the kind of each of its objects."""
    if "items" not in body:
        body["metadata"].pop("managedFields", None)
        return body
    for item in body["items"]:
        item["metadata"].pop("managedFields", None)
    same = {"apiVersion": body["apiVersion"], "kind": body["kind"].removesuffix("List")}
    return {"apiVersion": "v1", "kind": "List", "items": [{**same, **item} for item in body["items"]]}


@define
class Asker:
    """Asks one API server from inside of its network, with the administrator's certificate from ``directory``."""

    host: str
    netns: str
    directory: Path
    timeout: float = 10.0
    _kinds: dict[str, Kind] = field(factory=dict)
    _context: ssl.SSLContext | None = None

    def get(self, args: Sequence[str]) -> dict[str, Any] | None:
        """Return what ``kubectl get ARGS -o json`` would print, or None when kubectl is to be asked itself."""
        question = understood(args)
        if question is None:
            return None
        try:
            with ThreadPoolExecutor(1) as inside:  # the network of a thread is its own
                return inside.submit(self._answer, question).result()
        except _FAILURES:
            return None

    def _answer(self, question: Question) -> dict[str, Any]:
        process.enter(self.netns)
        if question.kind not in self._kinds:
            self._kinds = kinds(*(self._fetch(path, _DISCOVERY) for path in ("/api", "/apis")))
        return as_kubectl(self._fetch(question.path(self._kinds[question.kind]), "application/json"))

    def _fetch(self, path: str, accept: str) -> dict[str, Any]:
        if self._context is None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._context.load_verify_locations(self.directory / "ca.crt")
            self._context.load_cert_chain(self.directory / "admin.crt", self.directory / "admin.key")
        connection = http.client.HTTPSConnection(self.host, 6443, timeout=self.timeout, context=self._context)
        try:
            connection.request("GET", path, headers={"Accept": accept, "User-Agent": "tests"})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise LookupError(path)
        found: dict[str, Any] = json.loads(body)
        return found
