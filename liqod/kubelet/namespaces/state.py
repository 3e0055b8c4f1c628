"""The state of one home namespace with respect to one lender."""

from __future__ import annotations

from attrs import Factory, define, frozen

from liqod.kubelet.common.refusals import Attempts
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace


@frozen
class NotOffloaded:
    """Pods of the namespace are not offloaded through this node, for the reason in ``message``."""

    message: str


@frozen
class Pending:
    """The namespace is to be offloaded but cannot be used yet; ``asked``: the lender may know of it already."""

    asked: bool


@frozen
class Refused:
    """The lender refuses the namespace (for now)."""

    reason: str
    message: str


@frozen
class Offloaded:
    """Pods of the namespace are offloaded to ``remote``; while ``draining`` no new ones."""

    remote: RemoteNamespace
    draining: bool


NamespaceState = NotOffloaded | Pending | Refused | Offloaded


@define
class TrackedNamespace:
    """What is remembered about a namespace between two steps; after a restart it is rebuilt from the records."""

    remote: RemoteNamespace | None = None
    """Its counterpart at the lender, once it is watched."""
    request_again: bool = False
    """The lender refused something in it: its grant is to be requested again."""
    unanswered: int = 0
    """Requests for it since the last answer that could be used."""
    attempts: Attempts = Factory(Attempts)
    """Refusals of the lender in a row."""
