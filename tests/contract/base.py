"""What every contract case has: a server, a client, a namespace of its own, ways to ask and to wait."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from kubesandbox.auth.pki import Authority
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from liqod.kube.client import Client
from liqod.kube.connection.config import ClientConfig
from liqod.kube.errors import ApiError

Body = dict[str, Any]
reactor: Any = global_reactor
PATIENCE = 120.0

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Server(Protocol):
    """A server under the contract."""

    url: str
    authority: Authority

    def kubeconfig(self) -> str:
        """Return the administrator's kubeconfig."""


class Events(TwistedProtocol):
    """The events of one watch, as they come."""

    def __init__(self) -> None:
        self.events: list[Body] = []
        self.ended = False
        self._rest = b""

    def dataReceived(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.events.extend(json.loads(line) for line in lines if line)

    def connectionLost(self, reason: Failure = Failure(Exception())) -> None:  # noqa: B008 - Twisted's signature
        self.ended = True

    def of(self, name: str) -> list[str]:
        """Return the types of the events of one object."""
        return [each["type"] for each in self.events if each["object"].get("metadata", {}).get("name") == name]


class ContractCase(TestCase):
    """Cases derive from this and never name a server: ``open_server`` is what a run of the suite adds."""

    timeout = 400
    server: Server

    @abstractmethod
    async def open_server(self) -> Server:
        """Return the server that the cases run on."""

    async def close_server(self) -> None:
        """End what ``open_server`` began."""

    async def setUp(self) -> None:  # type: ignore[override]
        self.server = await self.open_server()
        self._clients: list[Client] = []
        self._aborts: list[Callable[[], None]] = []
        self.client = self.client_of("admin", ["system:masters"])
        created = await self.call("POST", "/api/v1/namespaces", {"metadata": {"generateName": "contract-"}})
        self.namespace: str = created["metadata"]["name"]
        self.space = f"/api/v1/namespaces/{self.namespace}"
        self._leftovers = [f"/api/v1/namespaces/{self.namespace}"]
        # The default account is made a moment after its namespace; pods cannot be created before.
        await self.eventually(lambda: self.found(f"{self.space}/serviceaccounts/default"))

    async def tearDown(self) -> None:  # type: ignore[override]
        for abort in self._aborts:
            abort()
        for path in reversed(self._leftovers):
            await self.found(path, "DELETE")
        for client in self._clients:
            await client.close()
        await self.close_server()

    # -- asking ------------------------------------------------------------------------------------------------------

    def client_of(self, user: str, groups: list[str] | None = None) -> Client:
        """Return a client that authenticates by a certificate for this user."""
        leaf = self.server.authority.client(user, groups or [])
        config = ClientConfig(self.server.url, self.server.authority.pem, leaf.certificate_pem, leaf.key_pem)
        return self._kept(config)

    def client_with(self, token: str) -> Client:
        """Return a client that authenticates by a token."""
        return self._kept(ClientConfig(self.server.url, self.server.authority.pem, token=lambda: token))

    def _kept(self, config: ClientConfig) -> Client:
        client = Client(config, reactor, user_agent="contract")
        self._clients.append(client)
        return client

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = JSON,
        client: Client | None = None,
        accept: str = "",
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> Body:
        """Make a request and return the answer; raises ApiError."""
        if query:
            path += "?" + urlencode({name: value for name, value in query.items() if value is not None})
        sent = {**(headers or {})}
        if body is not None:
            sent["Content-Type"] = kind
        if accept:
            sent["Accept"] = accept
        data = json.dumps(body).encode() if body is not None else b""
        answer = await (client or self.client).raw(method, path, body=data, headers=sent)
        return dict(json.loads(answer)) if answer.startswith(b"{") else {"text": answer.decode()}

    async def refused(
        self, code: int, reason: str, method: str, path: str, body: Any = None, **options: Any
    ) -> ApiError:
        """Make a request that is to be refused with this code and reason; return the refusal."""
        try:
            answer = await self.call(method, path, body, **options)
        except ApiError as error:
            self.assertEqual((error.code, error.reason), (code, reason), error.message)
            return error
        raise self.failureException(f"{method} {path} was not refused: {answer}")

    async def found(self, path: str, method: str = "GET") -> Body | None:
        """Return what is at a path, or None."""
        try:
            return await self.call(method, path)
        except ApiError as error:
            if error.code in (404, 409):
                return None
            raise

    async def gone(self, path: str) -> bool:
        """Tell whether nothing is at a path."""
        return await self.found(path) is None

    async def watching(self, path: str, client: Client | None = None, **query: Any) -> Events:
        """Begin a watch that ends with the case."""
        events = Events()
        text = urlencode({"watch": "true", **query}, quote_via=quote)
        abort = await (client or self.client).stream(f"{path}?{text}", events)
        self._aborts.append(lambda: None if events.ended else abort())
        return events

    async def eventually(self, look: Callable[[], Any], what: str = "what was waited for") -> Any:
        """Look again and again until there is something; return it."""
        deadline = reactor.seconds() + PATIENCE
        while True:
            seen = look()
            if hasattr(seen, "__await__"):
                seen = await seen
            if seen:
                return seen
            if reactor.seconds() > deadline:
                raise self.failureException(f"{what} did not come within {PATIENCE:g} s")
            await pause(0.05)

    # -- objects -----------------------------------------------------------------------------------------------------

    def leave(self, path: str) -> str:
        """Have something outside of the namespace removed after the case."""
        self._leftovers.append(path)
        return path

    def unique(self, word: str) -> str:
        """Return a name that no other run uses."""
        return f"{word}-{self.namespace.rpartition('-')[2]}"

    async def config_map(self, name: str, data: dict[str, str] | None = None, **metadata: Any) -> Body:
        body = {"metadata": {"name": name, **metadata}, "data": data or {}}
        return await self.call("POST", f"{self.space}/configmaps", body)

    async def pod(self, name: str, spec: Body | None = None, **metadata: Any) -> Body:
        body = {"metadata": {"name": name, **metadata}, "spec": pod_spec() | (spec or {})}
        return await self.call("POST", f"{self.space}/pods", body)

    async def node(self, word: str = "node", *, simulated: bool = False, **body: Any) -> str:
        """Create a node; a simulated one runs pods by itself."""
        name = self.unique(word)
        self.leave(f"/api/v1/nodes/{name}")
        labels = {"type": "simulated"} if simulated else {}
        capacity = {"cpu": "4", "memory": "8Gi", "pods": "20"}
        node = {"metadata": {"name": name, "labels": {"contract": name, **labels}}, **body}
        if simulated:
            node["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
            node["status"] = {"capacity": capacity, "allocatable": capacity}
            await self.join_node(node)
        else:
            await self.call("POST", "/api/v1/nodes", node)
        return name

    @abstractmethod
    async def join_node(self, node: Body) -> None:
        """Let a simulated node join; the server's run says how."""

    async def phase(self, name: str, phase: str) -> Body:
        async def reached() -> Body | None:
            pod = await self.call("GET", f"{self.space}/pods/{name}")
            return pod if pod["status"].get("phase") == phase else None

        return dict(await self.eventually(reached, f"pod {name} to be {phase}"))

    async def ready_node(self, word: str = "node", **body: Body) -> str:
        name = await self.node(word, simulated=True, **body)

        async def ready() -> bool:
            node = await self.call("GET", f"/api/v1/nodes/{name}")
            conditions = node["status"].get("conditions", [])
            fine = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
            ours = ("node.kubernetes.io/not-ready",)
            return fine and all(each["key"] not in ours for each in node["spec"].get("taints", []))

        await self.eventually(ready, f"node {name} to be ready")
        return name

    def on(self, node: str) -> Body:
        return {"nodeSelector": {"contract": node}, "terminationGracePeriodSeconds": 1}

    async def definition(self, **version: Any) -> tuple[str, str]:
        """Create a custom kind ``Thing``; return the path of its objects in the namespace, and its group."""
        group = f"{self.unique('things')}.example.com"
        name = f"things.{group}"
        schema = version.pop("schema", THING)
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": schema},
                        "subresources": {"status": {}},
                        **version,
                    }
                ],
            },
        }
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        self.leave(f"{crds}/{name}")
        await self.call("POST", crds, body)

        async def established() -> bool:
            found = await self.call("GET", f"{crds}/{name}")
            conditions = found.get("status", {}).get("conditions") or []
            return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

        await self.eventually(established, "the definition to be established")
        path = f"/apis/{group}/v1/namespaces/{self.namespace}/things"

        async def served() -> bool:
            return not await self.gone(path)

        await self.eventually(served, "the new kind to be served")
        return path, group

    def thing(self, group: str, name: str, spec: Body | None = None, **metadata: Any) -> Body:
        body: Body = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": name, **metadata}}
        return body | ({"spec": spec} if spec is not None else {})


THING: Body = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "weight": {"type": "integer"}},
                    },
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": {"type": "string"},
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {
                        "type": "object",
                        "required": ["type"],
                        "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                    },
                },
            },
        },
    },
}


def pod_spec(**container: Any) -> Body:
    return {"containers": [{"name": "main", "image": "busybox:1", **container}]}


async def pause(seconds: float) -> None:
    waiting: Deferred[None] = deferLater(reactor, seconds, lambda: None)
    await waiting
