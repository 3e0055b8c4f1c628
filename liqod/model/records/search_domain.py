"""The view of a SearchDomain record: a DNS-SD domain to search for peers. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from liqod.model.objects.meta import Object, View

MAX_DOMAINS: Final = 32
"""Domains that are searched."""
_DOMAIN = re.compile(r"(?=.{1,200}$)[A-Za-z0-9_]([-A-Za-z0-9_]{0,62})(\.[A-Za-z0-9_]([-A-Za-z0-9_]{0,62}))*\.?")


def is_domain(text: str) -> bool:
    """Return whether a text is a DNS domain in ASCII (write others as xn--...)."""
    return _DOMAIN.fullmatch(text) is not None


class SearchDomainSpec(View, frozen=True):
    """The domain that holds ``_liqod._tcp`` records."""

    domain: str = ""


class FoundPeer(View, frozen=True):
    """One address that was found, and the peer that it claims to be."""

    cluster_id: str = msgspec.field(name="clusterID", default="")
    cluster_name: str = ""
    address: str = ""


class SearchDomainStatus(View, frozen=True):
    """``phase`` is Found, Empty, Stale (DNS fails, results are kept) or Failed, with reason and message."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    refresh_seconds: int = 0
    found: list[FoundPeer] = []


class SearchDomain(Object, frozen=True):
    """A DNS-SD domain to search."""

    spec: SearchDomainSpec = SearchDomainSpec()
    status: SearchDomainStatus = SearchDomainStatus()
