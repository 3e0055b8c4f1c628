"""Which parts of ingresses and routes are plain: those that mean the same to every controller of them. Pure.

A controller writes paths into its own configuration, and what it does not escape changes that configuration for all
tenants of the controller (ingress-nginx: CVE-2021-25745, CVE-2021-25748). So it is with the values of headers: for
Envoy ``%ENVIRONMENT(X)%`` is a variable of its own process ("Access logging", command operators, which headers may
have), for nginx ``$X`` is one.
"""

from __future__ import annotations

import re
from typing import Final

PATH_TYPES: Final = ("Prefix", "Exact")
"""The types whose meaning Kubernetes defines ("Ingress", path types)."""
NOT_PLAIN: Final = "[^A-Za-z0-9/_.~-]"
"""What is in no plain path; a regular expression of RE2, and of Python."""
_NOT_PLAIN: Final = re.compile(NOT_PLAIN)

GATEWAY_GROUP: Final = "gateway.networking.k8s.io"
"""The API group of gateways and routes."""
ROUTE_PATH_TYPES: Final = ("PathPrefix", "Exact")
"""The types of paths in routes that each gateway has (Gateway API, ``PathMatchType``: Core)."""
ROUTE_FILTERS: Final = ("RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect", "URLRewrite")
"""The filters that change nothing but requests of their own route, and the answers to them."""
MAX_ROUTE_RULES: Final = 16
"""Rules of a route, as in the definitions of the Gateway API 1.0 to 1.3."""
MAX_MATCHES: Final = 8
"""Matches of one rule of a route: all together are 128, as the Gateway API has it for an HTTPRoute."""
NOT_A_NAME: Final = "[^A-Za-z0-9_.-]"
"""What is in no plain name of a header, a parameter or a host."""
NOT_A_VALUE: Final = "[^A-Za-z0-9 _.,:;/=+*@()?&~|!#-]"
"""What is in no plain value of a header or a parameter."""
_NOT_A_NAME: Final = re.compile(NOT_A_NAME)
_NOT_A_VALUE: Final = re.compile(NOT_A_VALUE)


def is_plain(path: str) -> bool:
    """Return whether a path is plain: it begins with a slash, and has unreserved characters alone (RFC 3986)."""
    return path.startswith("/") and is_plain_text(path)


def is_plain_text(text: str) -> bool:
    """Return whether a text has the characters of a plain path only."""
    return _NOT_PLAIN.search(text) is None


def is_plain_name(name: str) -> bool:
    """Return whether the name of a header, a parameter or a host is plain."""
    return _NOT_A_NAME.search(name) is None


def is_plain_value(value: str) -> bool:
    """Return whether the value of a header or a parameter is plain."""
    return _NOT_A_VALUE.search(value) is None
