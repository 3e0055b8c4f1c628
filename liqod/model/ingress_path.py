"""Which paths of ingresses are plain: those that mean the same to every ingress controller. Pure.

A controller writes paths into its own configuration, and what it does not escape changes that configuration for all
tenants of the controller (ingress-nginx: CVE-2021-25745, CVE-2021-25748).
"""

from __future__ import annotations

import re
from typing import Final

PATH_TYPES: Final = ("Prefix", "Exact")
"""The types whose meaning Kubernetes defines ("Ingress", path types)."""
NOT_PLAIN: Final = "[^A-Za-z0-9/_.~-]"
"""What is in no plain path; a regular expression of RE2, and of Python."""
_NOT_PLAIN: Final = re.compile(NOT_PLAIN)


def is_plain(path: str) -> bool:
    """Return whether a path is plain: it begins with a slash, and has unreserved characters alone (RFC 3986)."""
    return path.startswith("/") and _NOT_PLAIN.search(path) is None
