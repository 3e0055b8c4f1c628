"""Writes the status of an object by a minimal, conditional patch; an unchanged status is not written.

The patch carries the UID, so that an object created again under the same name does not inherit the old status, and the
resource version, so that a status computed from an old state does not overwrite a newer one (the API server answers
409). What the server refuses is returned as ``RefusedWrite`` (``kube.writing.refusals``): the caller returns
``After(...)`` accordingly, and may set a condition or record an event. Failures unrelated to the object (no response,
401, 410, 429, 5xx) are raised, for the controller's back-off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

import attrs
import msgspec

from liqod.flow.errors import ExpectedError
from liqod.kube.cache.store import Viewed
from liqod.kube.client import Client
from liqod.kube.errors import Conflict, Forbidden, Invalid, NotFound
from liqod.kube.resources import Resource
from liqod.kube.writing.merge_patch import merge_patch
from liqod.kube.writing.mutation_cache import Mutated
from liqod.kube.writing.refusals import RefusedWrite, Retry, refused_write
from liqod.model.ids import Key
from liqod.model.objects.meta import from_json, to_dict


class WithStatus(Viewed, Protocol):
    """A view with a status, which is a view itself, JSON bytes or plain values."""

    @property
    def status(self) -> Any: ...


S = TypeVar("S", bound=WithStatus)


@attrs.frozen
class Written(Generic[S]):
    """The object with its status; ``changed`` is True if a request was sent."""

    object: S
    changed: bool


class StatusRefused(ExpectedError):
    """The API server refused a status."""


def require(result: Written[Any] | RefusedWrite) -> None:
    """Raise StatusRefused for a write that was refused for another reason than a newer state of the object."""
    # An object that changed or is gone comes by its watch; what else was refused is tried again with a back-off.
    if isinstance(result, RefusedWrite) and result.retry is not Retry.AT_ONCE and result.reason != NotFound.__name__:
        raise StatusRefused(f"the status was refused: {result.message} ({result.reason})")


class StatusWriter(Generic[S]):
    """Writes statuses of one kind; records each response in ``mutations``, which the caller reads from.

    ``versioned`` False omits the resource version, for a kind whose status has several writers (pods: kubelet and
    scheduler): a concurrent write of other fields must not fail ours.
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

    async def write(self, present: S, status: Any) -> Written[S] | RefusedWrite:
        """Write a status (a view or plain values) to ``present``, the newest known state of an object.

        The status is complete: absent fields are removed. Raises KubeError for failures that are no refusal.
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
            return refused_write(error)
        except (Invalid, Forbidden) as error:
            return refused_write(error)
        self._mutations.wrote(key, present, answer)
        return Written(answer, changed=True)

    def patch(self, present: S, status: Any) -> dict[str, Any] | None:
        """Return the request's body; None if the object has this status."""
        change = merge_patch(_plain(present.status), _plain(status))
        if not change:
            return None
        meta = {"uid": present.metadata.uid}
        if self._versioned:
            # In a merge patch the version is a precondition: the server answers 409 if the object has another one by
            # then.
            meta["resourceVersion"] = present.metadata.resource_version
        return {"metadata": meta, "status": change}


def _plain(status: Any) -> Mapping[str, Any]:
    if isinstance(status, msgspec.Raw | bytes):
        status = from_json(status) if bytes(status) else {}
    elif isinstance(status, msgspec.Struct):
        status = to_dict(status)
    return status if isinstance(status, Mapping) else {}
