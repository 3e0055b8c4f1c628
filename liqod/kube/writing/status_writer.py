"""Writes the status of an object: only when it differs, only what differs, and only to the object it was computed for.

The patch carries the UID, so that an object created again under the same name does not inherit the status of the first,
and the resource version, so that a status computed from an old state does not overwrite a newer one. What the API
server refuses comes back as a ``Refusal`` (``kube.refusals``): the caller returns ``After(...)`` accordingly, and may
say so in a condition or an event. Failures that say nothing about the object (no answer, 401, 429, 5xx) are raised,
for the controller's back-off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

import attrs
import msgspec

from liqod.kube.cache.store import Viewed
from liqod.kube.client import Client
from liqod.kube.errors import Conflict, Forbidden, Invalid, NotFound
from liqod.kube.resources import Resource
from liqod.kube.writing.merge_patch import merge_patch
from liqod.kube.writing.mutation_cache import Mutated
from liqod.kube.writing.refusals import Refusal, refusal_of
from liqod.model.ids import Key
from liqod.model.objects.meta import to_dict


class WithStatus(Viewed, Protocol):
    """A view that has a status: a view itself, JSON bytes or plain values."""

    @property
    def status(self) -> Any: ...


S = TypeVar("S", bound=WithStatus)


@attrs.frozen
class Written(Generic[S]):
    """The object has the status now; ``changed`` tells whether a request was needed for that."""

    object: S
    changed: bool


class StatusWriter(Generic[S]):
    """Writes statuses of one kind; every answer is noted in ``mutations``, which the caller reads from.

    ``versioned`` False leaves the resource version out, for a kind of which others write other fields of the status all
    the time (pods: the kubelet and the scheduler do), where a race over fields that are not ours is no reason to fail.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        view: type[S],
        mutations: Mutated[Key, S],
        *,
        versioned: bool = True,
    ) -> None:
        self._client = client
        self._resource = resource
        self._view = view
        self._mutations = mutations
        self._versioned = versioned

    async def write(self, present: S, status: Any) -> Written[S] | Refusal:
        """Give ``present``, the newest known state of an object, a status (a view or plain values).

        The status is whole: a field that it does not have is removed. Raises KubeError for what is no refusal.
        """
        patch = self.patch(present, status)
        if patch is None:
            return Written(present, changed=False)
        key = present.metadata.key
        try:
            answer = await self._client.patch(
                self._resource, key.name, patch, key.namespace, kind="merge", subresource="status", view=self._view
            )
        except (Conflict, NotFound) as error:
            self._mutations.forget(key)
            return refusal_of(error)
        except (Invalid, Forbidden) as error:
            return refusal_of(error)
        self._mutations.wrote(key, present, answer)
        return Written(answer, changed=True)

    def patch(self, present: S, status: Any) -> dict[str, Any] | None:
        """Return the request's body; None when the object has that status."""
        change = merge_patch(_plain(present.status), _plain(status))
        if not change:
            return None
        meta = {"uid": present.metadata.uid}
        if self._versioned:
            meta["resourceVersion"] = present.metadata.resource_version
        return {"metadata": meta, "status": change}


def _plain(status: Any) -> Mapping[str, Any]:
    if isinstance(status, msgspec.Raw | bytes):
        status = msgspec.json.decode(status) if bytes(status) else {}
    elif isinstance(status, msgspec.Struct):
        status = to_dict(status)
    return status if isinstance(status, Mapping) else {}
