"""Applies the CRDs of liqod's kinds, shipped as package data, where the cluster's differ."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec
import yaml
from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.internet.task import deferLater
from twisted.logger import Logger

from liqod.kube.client import Client
from liqod.kube.errors import Forbidden, KubeError, NotFound
from liqod.kube.resources import CRDS
from liqod.model.names import FIELD_MANAGER

_log = Logger()
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
"""The label that says whose a definition is: Liqo has definitions of the same names."""
PATIENCE: Final = 30.0
"""Maximum seconds until CRDs are established; a healthy API server needs less than one."""


class NotEstablished(KubeError):
    """A CRD was accepted but is not established; the message quotes the conditions."""


def definitions() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions, sorted by name, each marked as liqod's; the caller may change them."""
    found: list[dict[str, Any]] = msgspec.json.decode(_encoded())
    return found


@cache
def _encoded() -> bytes:
    # To read them as YAML takes many times longer than as JSON.
    found: list[dict[str, Any]] = []
    for file in resources.files("liqod.kube").joinpath("manifests").iterdir():
        if file.name.endswith(".yaml"):
            found.extend(one for one in yaml.load_all(file.read_text("utf-8"), Loader=_LOADER) if one)
    crds = [one for one in found if one.get("kind") == "CustomResourceDefinition"]
    for one in crds:
        one["metadata"]["labels"] = {MANAGED_BY: FIELD_MANAGER}
    return msgspec.json.encode(sorted(crds, key=lambda one: str(one["metadata"]["name"])))


def covers(present: Any, wanted: Any) -> bool:
    """Return whether ``present`` contains everything in ``wanted``; fields defaulted by the API server are ignored.

    List entries are compared in order: the API server keeps the order of versions, columns and short names.
    """
    if isinstance(wanted, Mapping):
        return isinstance(present, Mapping) and all(
            covers(present.get(key), value) if key in present else value in ({}, [], "", None, False)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(present, list)
            and len(present) == len(wanted)
            and all(covers(left, right) for left, right in zip(present, wanted, strict=True))
        )
    return bool(present == wanted)


def is_established(definition: Mapping[str, Any]) -> bool:
    """Return whether a CRD is established: the API server serves its kind."""
    return any(one.get("type") == "Established" and one.get("status") == "True" for one in _conditions(definition))


async def ensure(client: Client, *, wait: bool = True) -> list[str]:
    """Apply the CRDs that differ from the cluster's; return their names.

    With ``wait``, all are established on return. Raises NotEstablished after 30 s, and Forbidden without the right to
    write CRDs.
    """
    wanted = {str(one["metadata"]["name"]): one for one in definitions()}
    work = [Deferred.fromCoroutine(_brought(client, name, one)) for name, one in wanted.items()]
    try:
        outcomes = await gatherResults(work, consumeErrors=True)
    except FirstError as error:
        for one in work:
            one.cancel()
        error.subFailure.raiseException()
        raise
    applied = [name for name, (was_applied, _) in zip(wanted, outcomes, strict=True) if was_applied]
    pending = [name for name, (_, there) in zip(wanted, outcomes, strict=True) if not is_established(there)]
    deadline = client.clock.seconds() + PATIENCE
    while wait and pending:
        await deferLater(client.clock, 0.1)
        now = {name: await client.get(CRDS, name) for name in pending}
        pending = [name for name in pending if not is_established(now[name])]
        if pending and client.clock.seconds() > deadline:
            raise NotEstablished(f"{pending[0]} is not served after {PATIENCE:g} s: {_reasons(now[pending[0]])}")
    return applied


async def _brought(client: Client, name: str, wanted: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Apply one CRD if it differs; return whether it was applied, and the cluster's current one."""
    try:
        there = await _there(client, name)
        if there is not None and covers(there.get("spec"), wanted["spec"]):
            return False, there
        there = await client.apply(CRDS, wanted)
    except Forbidden as error:
        raise Forbidden(
            error.code,
            error.reason,
            f"the daemon may not define {name}: {error.message}; have an administrator run `liqodctl install` "
            "of this release",
            error.details,
        ) from error
    _log.info("applied the definition {name}", name=name)
    return True, there


async def _there(client: Client, name: str) -> dict[str, Any] | None:
    try:
        return await client.get(CRDS, name)
    except NotFound:
        return None


def _conditions(definition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    # The conditions of a new CRD are null until the naming controller of the API server has processed it.
    return list((definition.get("status") or {}).get("conditions") or ())


def _reasons(definition: Mapping[str, Any]) -> str:
    bad = [one for one in _conditions(definition) if one.get("status") == "False"]
    messages = [str(one["message"]) for one in bad if one.get("message")]
    return "; ".join(messages) or "the API server gives no reason"
