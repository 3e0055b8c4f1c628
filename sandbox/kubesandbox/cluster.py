"""A whole cluster in this process: API server, controllers, scheduler, nodes."""

from __future__ import annotations

import base64
import datetime
import random as random_module
import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from twisted.application.service import MultiService
from twisted.internet import ssl
from twisted.internet.interfaces import IListeningPort, IReactorTCP, IReactorTime
from twisted.web.server import Site

from kubesandbox import bootstrap
from kubesandbox.auth.authn import Authenticator
from kubesandbox.auth.pki import Authority, Leaf
from kubesandbox.auth.rbac import Roles
from kubesandbox.auth.tokens import ADMIN, User
from kubesandbox.controllers.api_controllers import Definitions, GarbageCollector, Namespaces
from kubesandbox.controllers.endpoints import EndpointSlices
from kubesandbox.controllers.node_lifecycle import NodeLifecycle
from kubesandbox.controllers.scheduler import Scheduler
from kubesandbox.controllers.workloads import Deployments, ReplicaSets
from kubesandbox.kinds.catalog import Catalog
from kubesandbox.kinds.kinds import GroupResource, Json, Key
from kubesandbox.nodes.node import Nodes, SandboxNode
from kubesandbox.server.admission import ConfiguredWebhooks
from kubesandbox.server.api import Api
from kubesandbox.server.apiserver import ApiServer
from kubesandbox.store.pod_index import PodIndex
from kubesandbox.store.state import Store

_RBAC: Final = "rbac.authorization.k8s.io"


class _QuietSite(Site):
    """A site without access log."""

    def log(self, request: object) -> None:
        """Do nothing."""


class SandboxCluster(MultiService):
    """An in-memory Kubernetes cluster.

    ``clock`` gives all timers (a reactor, or ``task.Clock`` in tests); ``epoch`` is the time of day, in seconds since
    1970, at which that clock starts; with ``wall``, which returns such seconds, the time of day has a clock of its own.
    ``listen`` serves it on a socket; controllers run while the service does.
    """

    def __init__(
        self,
        clock: IReactorTime,
        name: str = "sandbox",
        nodes: Sequence[SandboxNode] = (),
        *,
        epoch: float | None = None,
        wall: Callable[[], float] | None = None,
        random: random_module.Random | None = None,
        history: int | None = None,
    ) -> None:
        super().__init__()
        self.setName(name)
        self.clock = clock
        self.cluster_name = name
        self._random = random or random_module.Random()
        self._started = clock.seconds()
        self._epoch = time.time() if epoch is None else epoch
        self._wall = wall or (lambda: self._epoch + self.clock.seconds() - self._started)
        self.store = Store() if history is None else Store(history=history)
        self.catalog = Catalog()
        self.api = Api(self.store, self.catalog, wall=self.wall, fresh_uid=self._fresh_uid, pick=self._pick)
        self._webhooks = ConfiguredWebhooks(self.store, clock, self._fresh_uid)
        self.api.webhooks = self._webhooks
        self.authority = Authority.create(f"{name}-ca", self._today())
        self._admin = self.authority.client(ADMIN.name, ["system:masters"])
        self._admin_token = secrets.token_urlsafe(32)
        secret = secrets.token_bytes(32)
        self.authenticator = Authenticator(self.store, secret, self.wall, {self._admin_token: ADMIN})
        self.roles = Roles(self._role_objects)
        self.api.grants = self.roles.check_grant
        self.server = ApiServer(self.api, self.authenticator, self.roles, clock, secret)
        self._ports: list[IListeningPort] = []
        self.url = ""
        self._bootstrap()
        self._populate(nodes)

    def _populate(self, nodes: Sequence[SandboxNode]) -> None:
        index = PodIndex(self.store)
        self.nodes = Nodes(self.cluster_name, self.api, self.clock, index)
        self.server.read_log = self.nodes.logs.read
        for service in (
            Namespaces(self.api, self.clock, self.authority.pem.decode()),
            Definitions(self.api, self.clock),
            GarbageCollector(self.api, self.clock),
            Scheduler(self.api, self.clock),
            self.nodes,
            NodeLifecycle(self.api, self.clock, index),
            ReplicaSets(self.api, self.clock, index),
            Deployments(self.api, self.clock),
            EndpointSlices(self.api, self.clock),
        ):
            service.setServiceParent(self)
        for node in nodes:
            self.nodes.add(node)

    # -- serving -----------------------------------------------------------------------------------------------------

    def listen(self, reactor: IReactorTCP, port: int = 0, host: str = "127.0.0.1", *, names: Sequence[str] = ()) -> int:
        """Serve over HTTPS at an address (0: a free port); return the port. ``names`` are further names of the host."""
        leaf = self.authority.serving("kube-apiserver", [*dict.fromkeys([host, "127.0.0.1", "localhost", *names])])
        certificate = ssl.PrivateCertificate.loadPEM(leaf.key_pem + leaf.certificate_pem)
        authority = ssl.Certificate.loadPEM(self.authority.pem)
        options = ssl.CertificateOptions(
            privateKey=certificate.privateKey.original,
            certificate=certificate.original,
            verify=True,
            requireCertificate=False,
            caCerts=[authority.original],
        )
        listening = reactor.listenSSL(port, self._site(), options, interface=host)  # type: ignore[attr-defined]
        return self._listening(listening, "https", host)

    def listen_plain(self, reactor: IReactorTCP, port: int = 0, host: str = "127.0.0.1") -> int:
        """Serve over plain HTTP at an address; return the port. Callers authenticate by token."""
        return self._listening(reactor.listenTCP(port, self._site(), interface=host), "http", host)  # type: ignore[arg-type]

    def _site(self) -> Site:
        site = _QuietSite(self.server)
        site.displayTracebacks = False
        return site

    def _listening(self, listening: IListeningPort, scheme: str, host: str) -> int:
        self._ports.append(listening)
        address: Any = listening.getHost()
        port: int = address.port
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        return port

    async def stop(self) -> None:
        """Stop serving, end all watches, stop the controllers."""
        for stream in list(self.server.streams):
            stream.stop()
        ports, self._ports = self._ports, []
        for port in ports:
            await port.stopListening()  # type: ignore[misc]
        await self._webhooks.close()
        if self.running:
            stopped: Any = self.stopService()
            if stopped is not None:
                await stopped

    # -- how to reach it ---------------------------------------------------------------------------------------------

    @property
    def admin(self) -> Leaf:
        """The administrator's client certificate."""
        return self._admin

    def client_certificate(self, user: str, groups: Sequence[str] = ()) -> Leaf:
        """Return a client certificate for a user in these groups."""
        return self.authority.client(user, groups)

    def kubeconfig(self) -> str:
        """Return a kubeconfig (JSON, which is YAML) of the administrator."""

        def encode(data: bytes) -> str:
            return base64.b64encode(data).decode()

        name = self.cluster_name
        user = {
            "client-certificate-data": encode(self._admin.certificate_pem),
            "client-key-data": encode(self._admin.key_pem),
        }
        if self.url.startswith("http:"):
            user = {"token": self._admin_token}
        cluster = {"server": self.url}
        if self.url.startswith("https:"):
            cluster["certificate-authority-data"] = encode(self.authority.pem)
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}}],
        }
        return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()

    def add_user(self, token: str, user: User) -> None:
        """Accept a fixed bearer token for a user."""
        self.authenticator.accept(token, user)

    # -- what it is made of ------------------------------------------------------------------------------------------

    def wall(self) -> float:
        """Return the time of day, in seconds since 1970, by the cluster's clock."""
        return self._wall()

    def object(self, resource: GroupResource, name: str, namespace: str = "") -> Json | None:
        """Return an object as it is stored, or None."""
        found = self.store.get(resource, Key(namespace, name))
        return found.object if found is not None else None

    def _today(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._epoch, datetime.UTC)

    def _bootstrap(self) -> None:
        for resource, namespace, body in bootstrap.objects():
            kind = self.catalog.builtin(resource)
            self.api.put_system(kind, Key(namespace, body["metadata"]["name"]), body)

    def _role_objects(self, plural: str, namespace: str) -> list[Json]:
        return [stored.object for stored in self.store.items(GroupResource(_RBAC, plural), namespace)]

    def _fresh_uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _pick(self, letters: str, count: int) -> str:
        return "".join(self._random.choices(letters, k=count))
