"""Applies the CRDs of liqod's kinds, shipped as package data, where the cluster's differ.

Each says which release wrote it. Those of a later release are never overwritten: they have fields that an earlier one
would drop, and records that need them. One minor release later they serve this one as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import msgspec
import yaml
from twisted.internet.task import deferLater
from twisted.logger import Logger

from liqod.flow.tasks import side_by_side
from liqod.kube.client import Client
from liqod.kube.errors import Forbidden, KubeError, LaterRelease, ManagedElsewhere, NotFound
from liqod.kube.resources import CRDS
from liqod.model.diagnosis.releases import VERSION_LABEL, is_newer, serves
from liqod.model.names import FIELD_MANAGER

_log = Logger()
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
"""The label that says whose a definition is: Liqo has definitions of the same names."""
PATIENCE: Final = 30.0
"""Maximum seconds until CRDs are established; a healthy API server needs less than one."""


class NotEstablished(KubeError):
    """A CRD was accepted but is not established; the message quotes the conditions."""


@cache
def release() -> str:
    """Return the release of liqod that runs; empty where it is not installed, as in a checkout."""
    try:
        return version("liqod")
    except PackageNotFoundError:
        return ""


def release_label() -> dict[str, str]:
    """Return the label that says which release wrote an object; none in a checkout."""
    # No value of a label has the local part of a version (PEP 440).
    return {VERSION_LABEL: release().partition("+")[0]} if release() else {}


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
        one["metadata"]["labels"] = {MANAGED_BY: FIELD_MANAGER, **release_label()}
    return msgspec.json.encode(sorted(crds, key=lambda one: str(one["metadata"]["name"])))


def later_release(definition: Mapping[str, Any], own: str) -> str:
    """Return the release that wrote a CRD if it is later than ``own``; empty if it is not, or not known. Pure."""
    written_by = str(_labels(definition).get(VERSION_LABEL, ""))
    return written_by if is_newer(written_by, own) else ""


def _labels(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    return (definition.get("metadata") or {}).get("labels") or {}


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


def _log_kept(sentence: str) -> None:
    _log.warn("a later release is or was in this cluster: {detail}", detail=sentence)


def _unnoticed(name: str) -> None:
    """Take no notice of a definition."""


async def ensure(
    client: Client,
    *,
    wait: bool = True,
    kept: Callable[[str], None] = _log_kept,
    created: Callable[[str], None] = _unnoticed,
    own: str = "",
    unmarked: bool = False,
) -> list[str]:
    """Apply the CRDs that differ from the cluster's; return their names.

    With ``wait``, all are established on return. ``kept`` is called with a sentence for each that a later release wrote
    and that stays as it is, ``created`` with the name of each that was not there before; ``own`` is this release, empty
    for the one that is installed. Raises NotEstablished after 30 s, Forbidden without the right to write CRDs; before
    anything is written LaterRelease for one that does not serve this release, and ManagedElsewhere, but with
    ``unmarked``, for one that nothing marks as liqod's.
    """
    wanted = {str(one["metadata"]["name"]): one for one in definitions()}
    found = dict(zip(wanted, await side_by_side(_there(client, name) for name in wanted), strict=True))
    there = {name: one for name, one in found.items() if one is not None}
    differing = [name for name, one in wanted.items() if name not in there or not _is_same(there[name], one)]
    own = own or release()
    later = {name: by for name in differing if (by := later_release(there.get(name, {}), own))}
    for sentence in [_left_alone(name, by, own) for name, by in later.items()]:
        kept(sentence)
    applied = [name for name in differing if name not in later]
    others = [name for name in applied if name in there and _labels(there[name]).get(MANAGED_BY) != FIELD_MANAGER]
    if others and not unmarked:
        raise ManagedElsewhere(
            f"the definition {others[0]} is not marked as liqod's, and was left as it is; `liqodctl install`, run by "
            "an administrator, says whose it is, and with --adopt takes over what a removed installation left behind"
        )
    there |= zip(applied, await side_by_side(_apply(client, name, wanted[name]) for name in applied), strict=True)
    for name in applied:
        if found[name] is None:
            created(name)
    pending = [name for name, one in there.items() if not is_established(one)]
    deadline = client.clock.seconds() + PATIENCE
    while wait and pending:
        await deferLater(client.clock, 0.1)
        now = {name: await client.get(CRDS, name) for name in pending}
        pending = [name for name in pending if not is_established(now[name])]
        if pending and client.clock.seconds() > deadline:
            raise NotEstablished(f"{pending[0]} is not served after {PATIENCE:g} s: {_reasons(now[pending[0]])}")
    return applied


def _is_same(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return covers(there.get("spec"), wanted["spec"])


async def _apply(client: Client, name: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    try:
        written = await client.apply(CRDS, wanted)
    except Forbidden as error:
        raise _without_rights(name, error) from error
    _log.info("applied the definition {name}", name=name)
    return written


def _without_rights(name: str, error: Forbidden) -> Forbidden:
    return Forbidden(
        error.code,
        error.reason,
        f"the daemon may not define {name}: {error.message}; have an administrator run `liqodctl install` of this "
        "release",
        error.details,
    )


def _left_alone(name: str, later: str, own: str) -> str:
    """Return why a definition stays as it is. Raises LaterRelease for one that does not serve this release."""
    if serves(later, own):
        return f"the definition {name} stays as liqod {later} wrote it, which is later than this release, {own}"
    raise LaterRelease(
        f"the definition {name} was written by liqod {later}, and this is {own}: to overwrite it would lose what the "
        f"later release keeps in its records; install liqod {later} again, or go back one minor release after the other"
    )


async def _there(client: Client, name: str) -> dict[str, Any] | None:
    try:
        return await client.get(CRDS, name)
    except NotFound:
        return None
    except Forbidden as error:
        raise _without_rights(name, error) from error


def _conditions(definition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    # The conditions of a new CRD are null until the naming controller of the API server has processed it.
    return list((definition.get("status") or {}).get("conditions") or ())


def _reasons(definition: Mapping[str, Any]) -> str:
    bad = [one for one in _conditions(definition) if one.get("status") == "False"]
    messages = [str(one["message"]) for one in bad if one.get("message")]
    return "; ".join(messages) or "the API server gives no reason"
