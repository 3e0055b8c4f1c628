"""The rules for an offer that both sides apply: the lender to its settings, the borrower to what it receives. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from liqod.model.ids import is_dns_label

RESERVED: Final = ("kubernetes.io", "k8s.io", "liqo.io")
"""Prefixes of labels to which Kubernetes or liqod give a meaning, with their subdomains."""
WELL_KNOWN: Final = frozenset(
    (
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
    )
)
"""Labels under a reserved prefix that may be offered: they describe where a node is and what it is ("Well-Known Labels,
Annotations and Taints"), and no component of Kubernetes grants anything by them."""
SHOWN: Final = ("region", "zone", "provider")
"""Labels that a borrower shows on virtual nodes, beside ``WELL_KNOWN``, unless its settings say otherwise. Any other
name may be one by which pods of the borrower choose their node, such as ``dedicated``."""
MAX_TTL: Final = 86400 * 7
"""Seconds of the longest time to live: the offer of a lender that vanished expires within a week."""

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def is_dns_name(text: str) -> bool:
    """Return whether a text is a DNS subdomain of at most 253 characters, as names of classes are (RFC 1123)."""
    return len(text) <= 253 and _PREFIX.fullmatch(text) is not None


def is_gateway(text: str) -> bool:
    """Return whether a text names a gateway: a namespace, "/" and a name."""
    namespace, _, name = text.partition("/")
    return is_dns_label(namespace) and is_dns_name(name)


def is_qualified_name(text: str) -> bool:
    """Return whether a text is a qualified name: an optional DNS prefix and "/", then 1 to 63 characters."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_dns_name(prefix):
        return False
    return _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Return whether a text may be a label's value: empty, or at most 63 of the characters of a name."""
    return text == "" or _NAME.fullmatch(text) is not None


def is_reserved(label: str) -> bool:
    """Return whether only the borrower's own cluster may set a label: by its prefix, or a subdomain of one."""
    prefix, slash, _ = label.partition("/")
    if not slash or label in WELL_KNOWN:
        return False
    return any(prefix == domain or prefix.endswith("." + domain) for domain in RESERVED)


def granted_labels(labels: Mapping[str, str], granted: Sequence[str]) -> dict[str, str]:
    """Return the labels that a virtual node may have; ``granted`` are keys, or prefixes that end in a slash or dot."""
    prefixes = tuple(one for one in granted if one.endswith(("/", ".")))
    return {
        key: value
        for key, value in labels.items()
        if key in WELL_KNOWN or key in granted or (prefixes and key.startswith(prefixes))
    }


def reserved_message() -> str:
    """Return what labels may not be offered, as the end of a sentence."""
    return f"may not be under {', '.join(RESERVED)}, except for {', '.join(sorted(WELL_KNOWN))}"


def is_ttl(seconds: float) -> bool:
    """Return whether an offer may have this time to live, in seconds."""
    return 1 <= seconds <= MAX_TTL
