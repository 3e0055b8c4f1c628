"""What the compiler of NetworkPolicies has to know: home as it is seen here, and this cluster's bounds. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from liqod.model.addresses import Address
from liqod.model.objects.portable_metadata import LABEL_DOMAINS
from liqod.model.records.network import AddressMap, Network

_UNTRANSLATED: Final = AddressMap()


@attrs.frozen
class KnownNamespace:
    """A namespace of home, its labels there, and its name ``here``; empty where it has none."""

    name: str
    labels: Mapping[str, str]
    here: str = ""


@attrs.frozen(kw_only=True)
class PodElsewhere:
    """A pod of home that runs elsewhere: at home, or at another lender. None in the network of its host.

    ``labels`` are those at home, ``addresses`` as they are seen here, ``ports`` the named ones of its containers: name,
    protocol, number. A ``namespace`` of "" is none: an endpoint that is no pod.
    """

    namespace: str
    labels: Mapping[str, str]
    addresses: Sequence[Address]
    ports: Sequence[tuple[str, str, int]] = ()


@attrs.frozen
class StandIn:
    """What stands here for an endpoint of home: the name server that pods have here, the way to home's API server.

    Who may reach ``port`` of ``pod`` at home may reach ``ports`` of ``peers`` (NetworkPolicyPeers) here, by the same
    protocol. It is this cluster's own word, and inside of its bounds.
    """

    pod: PodElsewhere
    port: int
    peers: Sequence[Mapping[str, Any]]
    ports: Sequence[int]


@attrs.frozen(kw_only=True)
class HomeFacts:
    """Home as one of its namespaces sees it, and how that reads here.

    ``pods`` are those elsewhere; those here are found by their labels. ``addresses``: how networks of home read here,
    itself where nothing is translated. ``here``: the networks in which pods that run here have their addresses at home.
    """

    namespace: str
    namespaces: Sequence[KnownNamespace] = ()
    pods: Sequence[PodElsewhere] = ()
    addresses: AddressMap = _UNTRANSLATED
    here: Sequence[Network] = ()
    stand_ins: Sequence[StandIn] = ()


@attrs.frozen(kw_only=True)
class Bounds:
    """What this cluster opens to a tenant's pods in its ``namespace``.

    ``egress``: the policy ``tenants.bounds.network_policy``, None where it opens everything; each of its rules names
    peers. What comes in has no bounds. ``labels``: those that pods have here as at home, but for those ``withheld``.
    """

    tenant: str
    namespace: str
    egress: Mapping[str, Any] | None = None
    labels: Sequence[str] = LABEL_DOMAINS
    withheld: frozenset[str] = frozenset()
