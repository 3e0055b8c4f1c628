"""A client that reads from the API server and only notes what would be written."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IReactorTime

from liqod.kube.client import Client
from liqod.kube.connection.config import ClientConfig
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import CRDS, Resource
from liqod.model.objects.meta import Object


class LookingClient(Client):
    """What writes through ``ensure``, run with this client, tells what it would write; ``noted`` has a line for each.

    A write raises NotFound as a real one does where the API server does not have the kind, or the object.
    """

    def __init__(self, config: ClientConfig, reactor: IReactorTime) -> None:
        super().__init__(config, reactor, user_agent="liqodctl")
        self._noted: dict[str, None] = {}
        self._served: set[Resource] = set()

    @property
    def noted(self) -> list[str]:
        """What would be written: kind and name."""
        return list(self._noted)

    async def create(self, resource: Resource, body: Any, namespace: str = "", **_: Any) -> Any:
        """Note a new object; raises AlreadyExists where there is one."""
        if resource not in self._served:
            # A kind that this API server does not have is not found, like an object of it.
            await self.page(resource, "", Object, limit=1)
            self._served.add(resource)
        name, where = body["metadata"]["name"], namespace or body["metadata"].get("namespace", "")
        try:
            await self.get(resource, name, where, view=Object)
        except NotFound:
            self._note(resource, name, where)
            return body
        raise AlreadyExists(409, "AlreadyExists", f"{resource} {name} already exists", {})

    async def apply(self, resource: Resource, body: Any, **_: Any) -> Any:
        """Note an object that is applied; a CRD is taken for one that is served at once."""
        self._note(resource, body["metadata"]["name"], body["metadata"].get("namespace", ""))
        served = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}
        return {**body, **served} if resource == CRDS else body

    async def patch(self, resource: Resource, name: str, patch: Any, namespace: str = "", **_: Any) -> Any:
        """Note a change of an object."""
        self._note(resource, name, namespace)
        return patch

    async def replace(self, resource: Resource, body: Any, name: str, namespace: str = "", **_: Any) -> Any:
        """Note a new content of an object."""
        self._note(resource, name, namespace)
        return body

    async def delete(self, resource: Resource, name: str, namespace: str = "", **_: Any) -> None:
        """Note a removal; raises NotFound where there is no such object."""
        await self.get(resource, name, namespace, view=Object)
        self._note(resource, name, namespace)

    def _note(self, resource: Resource, name: str, namespace: str) -> None:
        self._noted[f"{resource.kind} {namespace}/{name}" if namespace else f"{resource.kind} {name}"] = None
