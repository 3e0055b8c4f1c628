"""What a command would write, without writing it: the client of commands with ``--dry-run``, and of plans."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import msgspec

from liqod.cli.console import errors, terminal
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options
from liqod.cli.console.render import as_documents, as_text
from liqod.kube.client import Client, PatchKind
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.requests import Content, encoded, identity
from liqod.kube.resources import CRDS, SECRETS, Resource
from liqod.kube.writing.merge_patch import apply_merge_patch, compose

T = TypeVar("T")
_DICT: Any = dict
Body = dict[str, Any]

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation by which ``kubectl apply`` knows what it wrote; what is missing in the next record it removes."""


class EndOfDryRun(Exception):
    """The command would wait now for what it wrote: everything that it writes is known."""


@attrs.define
class _Planned:
    """One object that would be written: as it is (None: it would be created), and the merge patches so far.

    ``removed``: it would be deleted after that, and not be created again. ``applied``: by server-side apply.
    """

    resource: Resource
    namespace: str
    name: str
    live: Body | None
    patch: Body
    removed: bool = attrs.field(default=False, kw_only=True)
    applied: bool = attrs.field(default=False, kw_only=True)

    @property
    def shown(self) -> str:
        """Kind, namespace and name."""
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.resource.kind} {where}"

    def record(self) -> Body:
        """Return the record for ``kubectl apply``."""
        metadata = {"name": self.name} | ({"namespace": self.namespace} if self.namespace else {})
        head = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": metadata}
        if self.live is None:
            return apply_merge_patch(head, self.patch)
        return compose(head, applicable(_last_applied(self.live), self.live, self.patch))

    def body(self) -> Body:
        """Return the object as it would be."""
        return self.record() if self.live is None else apply_merge_patch(self.live, self.patch)

    def writes(self) -> Iterator[tuple[str, Resource, str, str]]:
        """Yield verb, kind, namespace and name of each request; what is created has its name in the body alone."""
        named = (self.resource, self.namespace, self.name)
        if self.removed:
            yield ("delete", *named)
            return
        if self.live is None:
            yield ("create", self.resource, self.namespace, "")
        if self.live is not None or self.applied:
            yield ("patch", *named)

    def line(self) -> str:
        return f"would {'create' if self.live is None else 'change'} {self.shown}"


class RecordingClient(Client):
    """Reads like its base; what is created, applied, patched and deleted is kept, and nothing is sent.

    A write raises NotFound as a real one does where the API server does not have the kind, or the object. ``notes`` say
    in sentences what the command does that no record expresses.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.notes: list[str] = []
        self._planned: dict[tuple[Resource, str, str], _Planned] = {}

    @property
    def planned(self) -> list[_Planned]:
        """What would be created and changed, in the order in which the command begins with it."""
        return [one for one in self._planned.values() if one.patch or not one.removed]

    @property
    def touched(self) -> list[str]:
        """What would be created, changed and deleted: kind, namespace and name of each object."""
        return [one.shown for one in self._planned.values()]

    @property
    def writes(self) -> list[tuple[str, Resource, str, str]]:
        """What would be sent: verb, kind, namespace and name of each request; no name where none is needed."""
        return [write for one in self._planned.values() for write in one.writes()]

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        view: type[T] | None = _DICT,
    ) -> T:
        """Read an object as it would be by now; raise NotFound if it would not be there."""
        known = None if subresource else self._planned.get((resource, namespace, name))
        if known is None:
            return await super().get(resource, name, namespace, subresource=subresource, view=view)
        if known.removed:
            raise _not_found(resource, name)
        return self._shown(_served(resource, known.body()), view)

    async def create(
        self, resource: Resource, body: Content, namespace: str = "", *, view: type[T] | None = _DICT, **more: Any
    ) -> T:
        """Keep an object that would be created; raise AlreadyExists if it is there."""
        if more.get("subresource"):
            raise _no_record(f"{resource.kind}/{more['subresource']}")
        namespace, name = namespace or identity(body)[0], identity(body)[1]
        key = (resource, namespace, name)
        known = self._planned.get(key)
        if (known is not None and not known.removed) or (known is None and await self._live(*key) is not None):
            raise AlreadyExists(409, "AlreadyExists", f"{resource} {name} exists")
        self._planned[key] = _Planned(*key, None, msgspec.json.decode(encoded(body)))
        return self._shown(self._planned[key].record(), view)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Content | list[Any],
        namespace: str = "",
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        manager: str = "",
        view: type[T] | None = _DICT,
    ) -> T:
        """Keep a merge patch of an object; raise NotFound if there is no such object."""
        key = (resource, namespace, name)
        known = self._planned.get(key)
        live = known.live if known is not None else await self._live(*key)
        if (known is None and live is None) or (known is not None and known.removed):
            raise _not_found(resource, name)
        if subresource:
            fields = ", ".join(msgspec.json.decode(encoded(patch)).get(subresource, {}))
            self.notes.append(f"the command also changes the {subresource} of {resource.kind} {name} ({fields})")
        elif kind == "merge":
            planned = self._planned.setdefault(key, known or _Planned(*key, live, {}))
            planned.patch = compose(planned.patch, msgspec.json.decode(encoded(patch)))
        else:
            raise _no_record(f"a {kind} patch")
        kept = self._planned.get(key)
        return self._shown(apply_merge_patch(live or {}, kept.patch if kept is not None else {}), view)

    async def delete(
        self, resource: Resource, name: str, namespace: str = "", *, missing_ok: bool = True, **more: Any
    ) -> None:
        """Note a deletion, which no record expresses."""
        key = (resource, namespace, name)
        known = self._planned.get(key)
        live = known.live if known is not None else await self._live(*key)
        if (known is None and live is None) or (known is not None and known.removed):
            if not missing_ok:
                raise _not_found(resource, name)
            return
        if live is None:
            del self._planned[key]  # it would have been created by this very command
            return
        self._planned[key] = _Planned(*key, live, known.patch if known is not None else {}, removed=True)
        place = f" -n {namespace}" if namespace else ""
        self.notes.append(f"the command also deletes an object: kubectl delete {resource} {name}{place}")

    async def apply(self, resource: Resource, body: Content, *, view: type[T] | None = _DICT, **more: Any) -> T:
        """Keep an object that would be applied; a CRD is taken for one that is served at once."""
        key = (resource, *identity(body))
        known = self._planned.get(key)
        live = known.live if known is not None else await self._live(*key)
        planned = self._planned[key] = _Planned(*key, live, msgspec.json.decode(encoded(body)), applied=True)
        return self._shown(_served(resource, planned.record()), view)

    async def replace(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: no command that is planned replaces objects."""
        raise _no_record("a replaced object")

    async def _live(self, resource: Resource, namespace: str, name: str) -> Body | None:
        """Return an object, or None; raise NotFound where this API server does not have the kind."""
        try:
            found: Body = await super().get(resource, name, namespace)
        except NotFound as error:
            # Only the Status of an object names it (k8s.io/apimachinery, NewNotFound): a kind that is not served gets
            # an empty one, or none at all.
            if not error.details.get("name"):
                raise
            return None
        return found

    def _shown(self, body: Body, view: type[T] | None) -> T:
        return self._decoded(encoded(body), view)


def _served(resource: Resource, body: Body) -> Body:
    """Return an object that would be written; of a definition that it would be served."""
    served = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}
    return body | served if resource == CRDS else body


def _not_found(resource: Resource, name: str) -> NotFound:
    return NotFound(404, "NotFound", f"{resource} {name} not found")


def _no_record(what: str) -> CliError:
    return CliError(errors.DEFECT, f"{what} is no record for kubectl apply", "run the command without --dry-run")


def applicable(before: Mapping[str, Any], live: Mapping[str, Any], patch: Mapping[str, Any]) -> Body:
    """Return what ``kubectl apply`` turns into a merge patch of the live object, and into nothing else. Pure.

    ``before`` is what was applied last: a field of it that is left out would be removed. Null removes a field; it is
    kept where the live object has the field. Annotations are set to "" instead, since kubectl reads null as "".
    """
    merged = compose(before, patch)
    return _without_vain_nulls(merged, live)


def _without_vain_nulls(body: Mapping[str, Any], live: Mapping[str, Any], *, text: bool = False) -> Body:
    result: Body = {}
    for name, value in body.items():
        there = live.get(name)
        if isinstance(value, Mapping):
            inner = _without_vain_nulls(value, there if isinstance(there, Mapping) else {}, text=name == "annotations")
            # An object in a merge patch takes the place of a value that is none, also when it only removes (RFC 7396).
            if inner or not value or not (there is None or isinstance(there, Mapping)):
                result[name] = inner
        elif value is not None:
            result[name] = value
        elif there is not None:
            result[name] = "" if text else None
    return result


def _last_applied(live: Mapping[str, Any]) -> Body:
    """Return what ``kubectl apply`` wrote last; empty where it did not, or where that cannot be read."""
    text = (live.get("metadata", {}).get("annotations") or {}).get(LAST_APPLIED, "")
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    found.pop("status", None)
    return found


def print_records(options: Options, client: RecordingClient) -> None:
    """Print what a command would do: records for programs, a line for each for people; notes on standard error."""
    planned = client.planned
    if options.is_document:
        terminal.echo_document(_documents(options, [one.record() for one in planned]) if planned else "")
    else:
        for one in planned:
            terminal.echo(one.line())
        if planned:
            terminal.echo_wrapped("nothing was changed; -o yaml prints this for `kubectl apply -f -`")
    secrets = [f"keep the Secret {one.name} out of git, or encrypt it" for one in planned if one.resource == SECRETS]
    notes = [*secrets, *client.notes] if planned or client.notes else ["nothing would be changed"]
    for note in notes:
        terminal.echo_wrapped(f"note: {note}", hanging="  ", err=True)


def _documents(options: Options, records: Sequence[Body]) -> str:
    if options.output == "yaml":
        return as_documents(records)
    return as_text({"apiVersion": "v1", "kind": "List", "items": list(records)}, "json", ascii_only=True)
