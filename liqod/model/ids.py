"""Identifiers: cluster IDs, namespaced names, key fingerprints."""

from __future__ import annotations

import re
from typing import NamedTuple, NewType

ClusterID = NewType("ClusterID", str)
"""A DNS-1123 label of at most 63 characters; by default the UID of ``kube-system``."""

Fingerprint = NewType("Fingerprint", str)
"""``sha256:`` and 64 lower-case hex digits: the digest of a certificate's SubjectPublicKeyInfo."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")


class Key(NamedTuple):
    """The namespace and name of an object; the namespace is empty for cluster-scoped ones."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def is_dns_label(text: str) -> bool:
    """Return whether a text is a DNS-1123 label (Kubernetes: "Object Names and IDs")."""
    return _LABEL.fullmatch(text) is not None


def parse_cluster_id(text: str) -> ClusterID:
    """Return the text as a cluster ID; raises ValueError with what is allowed."""
    if not is_dns_label(text):
        raise ValueError(
            f"cluster ID {text[:80]!r} is not a DNS-1123 label: lower-case letters, digits and '-', at most 63, "
            "beginning and ending with a letter or digit"
        )
    return ClusterID(text)


def parse_fingerprint(text: str) -> Fingerprint:
    """Return the text as a key fingerprint; raises ValueError with what is allowed."""
    if _FINGERPRINT.fullmatch(text) is None:
        raise ValueError(f"fingerprint {text[:80]!r} is not 'sha256:' followed by 64 lower-case hex digits")
    return Fingerprint(text)
