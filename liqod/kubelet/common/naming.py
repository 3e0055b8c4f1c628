"""Names at the lender: the remote namespace of a local one, and label values of valid length."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from liqod.model.ids import ClusterID, is_dns_label
from liqod.model.names import remote_namespace

# apimachinery, pkg/util/validation: LabelValueMaxLength.
MAX_LABEL_VALUE: Final = 63


def label_value(text: str) -> str:
    """Return a text as a label value: shortened, with eight hex digits of its hash, if it is too long.

    A label value has at most 63 characters (Kubernetes, "Labels and Selectors").
    """
    if len(text) <= MAX_LABEL_VALUE:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: MAX_LABEL_VALUE - 9].rstrip('-_.')}-{digest}"


def choose_remote(local: str, home: ClusterID, taken: Mapping[str, str], wanted: str = "") -> str | None:
    """Return the remote namespace for a local one; None if the user's choice ``wanted`` maps to another one already.

    ``taken`` maps remote names to local ones. Without ``wanted`` the default name is used; if another local namespace
    has it (the hashes of two shortened names collide), the name ends with a digest of cluster ID and local name.
    """
    if wanted:
        return wanted if taken.get(wanted, local) == local else None
    name = remote_namespace(local, home)
    if taken.get(name, local) == local:
        return name
    digest = hashlib.sha256(f"{home}/{local}".encode()).hexdigest()
    return f"{local[:22].rstrip('-')}-{digest[:40]}"


def usable_answer(answered: str, local: str, taken: Mapping[str, str]) -> bool:
    """Return whether the namespace name in the lender's answer is valid and not mapped to another local namespace."""
    return is_dns_label(answered) and taken.get(answered, local) == local
