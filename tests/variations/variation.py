"""A variation: an object that a tenant asks for, in one of the ways in which an API server can be asked."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, Literal

from attrs import evolve, field, frozen

from liqod.kube.client import Client
from liqod.kube.errors import ApiError, Conflict
from liqod.kube.requests import collection, item
from liqod.kube.resources import Resource

How = Literal["create", "yaml", "generated", "applied", "merge", "json", "strategic", "replaced", "reapplied"]
AT_ONCE: Final[tuple[How, ...]] = ("create", "yaml", "generated", "applied")
LATER: Final[tuple[How, ...]] = ("merge", "json", "replaced", "reapplied")
"""How a harmless object becomes the forbidden one; Kubernetes' own kinds know strategic merge patches, too."""
MARK: Final = "taken"
"""The value of labels and annotations that other controllers act on: wherever it is seen, a variation has succeeded."""

CONFLICTS: Final = 5
"""How often a harmless object is asked for again when others changed the same quota at the same time."""


@frozen
class ForbiddenObject:
    """What a tenant should not have: its words, the forbidden object and, for a change, the harmless one.

    Both have ``metadata`` without a name, and ``spec``.
    """

    words: str
    desired: Mapping[str, Any]
    harmless: Mapping[str, Any]


@frozen
class Variation:
    """One attack: a kind, a name, a forbidden object and a way to ask."""

    resource: Resource
    name: str
    forbidden: ForbiddenObject
    how: How
    aside: Mapping[str, Any] = field(factory=dict)
    """Harmless metadata that comes along."""

    def __str__(self) -> str:
        return f"{self.resource.plural}/{self.name}: {self.forbidden.words} ({self.how})"

    def body(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole object of one of the contents of the forbidden one."""
        made: dict[str, Any] = copy.deepcopy({**content})
        metadata = made.setdefault("metadata", {})
        for key, value in self.aside.items():
            metadata[key] = {**value, **metadata.get(key, {})} if isinstance(value, Mapping) else value
        metadata["name"] = self.name
        version = f"{self.resource.group}/{self.resource.version}".strip("/")
        return {"apiVersion": version, "kind": self.resource.kind, **made}

    async def ask(self, client: Client, namespace: str) -> str:
        """Ask for the forbidden object and return the refusal, or nothing.

        Raises AssertionError where the API server refuses the harmless object that is to be changed.
        """
        desired = self.body(self.forbidden.desired)
        if self.how in LATER or self.how == "strategic":
            try:
                first = await self._harmless(client, namespace)
            except ApiError as error:
                raise AssertionError(f"{self}: the harmless object is refused: {error.message}") from error
        else:
            first = {}
        try:
            await self._ask(client, namespace, desired, first)
        except ApiError as error:
            return f"{error.code} {error.message}"
        return ""

    async def _harmless(self, client: Client, namespace: str) -> dict[str, Any]:
        # Many at a time change the status of one quota; its admission plugin gives up after three conflicts.
        for _ in range(CONFLICTS):
            with contextlib.suppress(Conflict):
                return await client.create(self.resource, self.body(self.forbidden.harmless), namespace)
        return await client.create(self.resource, self.body(self.forbidden.harmless), namespace)

    async def _ask(self, client: Client, namespace: str, desired: dict[str, Any], first: dict[str, Any]) -> None:
        many, one = collection(self.resource, namespace), item(self.resource, namespace, self.name, "")
        owner = "?fieldManager=borrower&force=true"
        if self.how == "create":
            await client.create(self.resource, desired, namespace)
        elif self.how == "generated":
            metadata = {**desired["metadata"], "generateName": f"{self.name}-"}
            metadata.pop("name")
            await client.create(self.resource, {**desired, "metadata": metadata}, namespace)
        elif self.how == "yaml":
            await send(client, "POST", many, "application/yaml", _yaml(desired))
        elif self.how in ("applied", "reapplied"):
            await send(client, "PATCH", one + owner, "application/apply-patch+yaml", _yaml(desired))
        elif self.how == "merge":
            await send(client, "PATCH", one, "application/merge-patch+json", json.dumps(desired))
        elif self.how == "strategic":
            await send(client, "PATCH", one, "application/strategic-merge-patch+json", json.dumps(desired))
        elif self.how == "json":
            metadata = {**first["metadata"], **desired["metadata"]}
            steps = [
                {"op": "add", "path": f"/{key}", "value": metadata if key == "metadata" else value}
                for key, value in desired.items()
                if key not in ("apiVersion", "kind")
            ]
            await send(client, "PATCH", one, "application/json-patch+json", json.dumps(steps))
        else:
            version = first["metadata"]["resourceVersion"]
            metadata = {**desired["metadata"], "resourceVersion": version}
            await client.replace(self.resource, {**desired, "metadata": metadata}, self.name, namespace)


async def send(client: Client, method: str, path: str, kind: str, body: str) -> None:
    """Send a body of a content type as it is; raises ApiError for what is refused."""
    await client.raw(method, path, body=body.encode(), headers={"Content-Type": kind})


def _yaml(body: Any) -> str:
    """Return a document in YAML that JSON could not be: the API server takes another decoder for it."""
    return "# a comment\n---\n" + json.dumps(body, indent=1) + "\n"


def varied(
    random: Random, resource: Resource, objects: Sequence[ForbiddenObject], count: int, *, strategic: bool = True
) -> Iterator[Variation]:
    """Yield as many variations: each object once, then some by chance, each in a way by chance with harmless metadata.

    ``strategic``: whether the kind knows strategic merge patches; custom resources do not.
    """
    assert len(objects) <= count, (resource.plural, len(objects))
    chosen = [*objects, *random.choices(objects, k=count - len(objects))]
    ways: tuple[How, ...] = (*AT_ONCE, *LATER, *(("strategic",) if strategic else ()))
    for number, forbidden in enumerate(chosen):
        aside: dict[str, Any] = {}
        if random.random() < 0.5:
            aside["labels"] = {"app": random.choice(("web", "db")), "app.kubernetes.io/name": "web"}
        if random.random() < 0.5:
            aside["annotations"] = {"note": "n" * random.randrange(1, 200)}
        yield Variation(resource, f"v{number}", forbidden, random.choice(ways), aside)


def with_origin(variation: Variation, origin: str) -> Variation:
    """Return the variation with the label that all has which a borrower writes: the ID of the home cluster."""
    labels = {**variation.aside.get("labels", {}), "offloading.liqo.io/origin": origin}
    return evolve(variation, aside={**variation.aside, "labels": labels})
