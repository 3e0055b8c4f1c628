"""Attributes of a request besides its body: caller, options, and the data for admission."""

from __future__ import annotations

from typing import Any, Protocol

import attrs

from kubesandbox.auth.tokens import User, system
from kubesandbox.kinds.kinds import Json, Key, Kind


@attrs.frozen
class Caller:
    """The writer of a request, and the field manager that owns its fields."""

    user: User
    manager: str = "unknown"
    dry_run: bool = False
    strict: bool = False


@attrs.frozen
class DeleteOptions:
    """The options of a deletion; ``propagation`` is Background, Foreground or Orphan."""

    grace: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    dry_run: bool = attrs.field(default=False, kw_only=True)


@attrs.frozen
class Review:
    """The input of admission plugins and webhooks; ``operation`` is CREATE, UPDATE or DELETE."""

    operation: str
    kind: Kind
    key: Key
    subresource: str
    new: Json | None = attrs.field(kw_only=True)
    old: Json | None = attrs.field(kw_only=True)
    caller: Caller = attrs.field(kw_only=True)
    namespace: Json | None = attrs.field(kw_only=True)


class Webhooks(Protocol):
    """The admission webhooks that are configured."""

    def matching(self, review: Review, *, mutating: bool) -> list[Any]:
        """Return the webhooks to ask."""

    async def mutate(self, review: Review, hooks: list[Any]) -> Json:
        """Return the object after all mutating webhooks; raise ApiStatus if one refuses."""

    async def validate(self, review: Review, hooks: list[Any]) -> None:
        """Raise ApiStatus when a webhook refuses."""


def system_caller(name: str) -> Caller:
    """Return a component of the control plane as a caller."""
    return Caller(system(name), name)
