"""From a tenant's question to one for this cluster's DNS, and from its answer back. Pure.

At home a service is ``cache.shop.svc.<domain of home>``; here it is ``cache.shop-rome.svc.<domain of this cluster>``,
in the namespace that was made for ``shop``. Nothing else below either domain is ever asked for, and what an answer says
about other namespaces is left out. Names are in lower case and without the dot at their end.

Sources: Kubernetes DNS-Based Service Discovery (dns/docs/specification.md), RFC 8020 (a name that does not exist has
nothing below it, so that the names above a service exist).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import field, frozen

from liqod.model.addresses import Address
from liqod.model.records.network import Network

MAX_NAME: Final = 253
"""Characters of a name, without the dot at its end (RFC 1035, 3.1: 255 octets)."""
_KINDS: Final = ("svc", "pod")
_LABEL: Final = re.compile(r"[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?")
_DIGITS: Final = frozenset("0123456789abcdef")
PROTOCOLS: Final = ("_tcp", "_udp", "_sctp")
"""The second label of a name of a port."""
PTR: Final = 12
TO_HOME: Final = "home.liqod"
"""The domain of questions that processes which answer have for control: the name at home, and the tenant, below it."""


@frozen
class TenantView:
    """What a tenant sees: its namespaces (``remote``: name at home -> name here), below its own cluster's domain.

    ``home`` and ``lender`` are the domains of the two clusters. Below the addresses of ``closed`` networks, and of all
    private ones, only names of the tenant's are answered. ``tenant`` is its ID where its home may be asked, else empty.
    """

    home: str
    lender: str
    remote: Mapping[str, str]
    closed: tuple[Network, ...] = ()
    tenant: str = ""
    local: Mapping[str, str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "local", {here: home for home, here in self.remote.items()})


@frozen
class Forward:
    """The question goes on as it is, and the answer comes back as it is."""


@frozen
class Translate:
    """The question is asked by this name, and the answer is translated back."""

    name: str


@frozen
class Reverse:
    """The question is asked as it is; of the answer only names remain that the tenant may know.

    ``closed``: the address is one of this cluster or of a private network, where names of others are nobody's concern.
    """

    closed: bool


@frozen
class Empty:
    """There is no record; ``exists``: the name is there all the same, above others (RFC 8020)."""

    exists: bool


@frozen
class AskHome:
    """The name may exist at home, and in no namespace that is offloaded to this cluster: home is asked."""


Plan = Forward | Translate | Reverse | Empty | AskHome


def plan(name: str, kind: int, view: TenantView) -> Plan:
    """Return what becomes of a question for a name (lower case) and a type of record (RFC 1035, 3.2.2)."""
    labels = _below(name, view.home)
    if labels is not None:
        return _of_home(labels, view)
    if _below(name, view.lender) is not None:
        return Empty(exists=False)
    if _below(name, "in-addr.arpa") is None and _below(name, "ip6.arpa") is None:
        return Forward()
    if (address := address_of(name)) is None or kind != PTR:
        return Empty(exists=True)
    return Reverse(not address.is_global or any(address in network for network in view.closed))


def translate_back(name: str, view: TenantView) -> str | None:
    """Return a name of an answer as the tenant knows it; None for one that is no concern of the tenant's."""
    labels = _below(name, view.lender)
    if labels is None:
        return name
    if len(labels) < 2 or labels[-1] not in _KINDS or labels[-2] not in view.local:
        return None
    known = ".".join([*labels[:-2], view.local[labels[-2]], labels[-1], view.home])
    return known if len(known) <= MAX_NAME else None


def is_name(text: str) -> bool:
    """Return whether a text is a name that another cluster takes in an answer (docs/protocol.md)."""
    return len(text) <= MAX_NAME and all(_LABEL.fullmatch(label) for label in text.split("."))


def is_service_form(labels: Sequence[str]) -> bool:
    """Return whether labels, the last one a namespace, can name a Service, one of its endpoints or of its ports.

    Home is asked for nothing else: what a pod looks up outside of clusters it tries below its search domains first.
    """
    if not 2 <= len(labels) <= 4 or not all(_LABEL.fullmatch(label) for label in labels):
        return False
    return len(labels) < 4 or (labels[0][0] == "_" and labels[1] in PROTOCOLS)


def may_be_at_home(name: str, todo: Plan, view: TenantView) -> bool:
    """Return whether home may know a name that this cluster's DNS does not: of a Service, or a private address."""
    if isinstance(todo, Reverse):
        return todo.closed
    labels = _below(name, view.home) or ["", ""]
    return isinstance(todo, Translate) and labels[-1] == "svc" and is_service_form(labels[:-1])


def home_question(name: str, view: TenantView) -> str | None:
    """Return the name by which control is asked what a tenant's home says of a name; None where it cannot be asked."""
    asked = f"{name}.{view.tenant}.{TO_HOME}"
    return asked if view.tenant and len(asked) <= MAX_NAME else None


def asked_of_home(name: str) -> tuple[str, str] | None:
    """Return the name and the tenant of such a question; None for another one."""
    if not name.endswith(f".{TO_HOME}"):
        return None
    asked, _, tenant = name.removesuffix(f".{TO_HOME}").rpartition(".")
    return (asked, tenant) if asked and tenant else None


def address_of(name: str) -> Address | None:
    """Return the address whose name in a reverse zone this is (RFC 1035, 3.5; RFC 3596, 2.5); None for another name."""
    four, six = _below(name, "in-addr.arpa"), _below(name, "ip6.arpa") or []
    try:
        if four is not None:
            return ipaddress.IPv4Address(".".join(reversed(four)))
        # int() takes signs and underscores too.
        if len(six) != 32 or not all(digit in _DIGITS for digit in six):
            return None
        return ipaddress.IPv6Address(int("".join(reversed(six)), 16))
    except ValueError:
        return None


def is_of_lender(name: str, view: TenantView) -> bool:
    """Return whether a name is below this cluster's own domain."""
    return _below(name, view.lender) is not None


def _of_home(labels: list[str], view: TenantView) -> Plan:
    if not labels or labels[-1] not in _KINDS:
        return Empty(exists=not labels)
    if len(labels) == 1:
        return Empty(exists=True)
    namespace = view.remote.get(labels[-2])
    if namespace is None:
        if labels[-1] == "svc" and view.tenant and is_service_form(labels[:-1]):
            return AskHome()
        return Empty(exists=False)
    if not all(_LABEL.fullmatch(label) for label in labels):
        return Empty(exists=False)
    if len(labels) == 2:
        return Empty(exists=True)
    wanted = ".".join([*labels[:-2], namespace, labels[-1], view.lender])
    return Translate(wanted) if len(wanted) <= MAX_NAME else Empty(exists=False)


def _below(name: str, domain: str) -> list[str] | None:
    """Return the labels that a name has below a domain, none for the domain itself; None for a name elsewhere."""
    if name == domain:
        return []
    return name[: -len(domain) - 1].split(".") if name.endswith(f".{domain}") else None
