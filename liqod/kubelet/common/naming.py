"""Names on the other side: which remote namespace a local one gets, and label values that always fit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from liqod.model.ids import ClusterID, is_dns_label
from liqod.model.names import remote_namespace

MAX_LABEL_VALUE: Final = 63


def label_value(text: str) -> str:
    """Return a text as a label value: itself if it fits, else shortened with eight hex digits of its hash."""
    if len(text) <= MAX_LABEL_VALUE:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: MAX_LABEL_VALUE - 9].rstrip('-_.')}-{digest}"


def choose_remote(local: str, home: ClusterID, taken: Mapping[str, str], wanted: str = "") -> str | None:
    """Return the remote namespace for a local one; None when ``wanted``, which users chose, stands for another one.

    ``taken`` maps remote names to local ones. The rule's own name is used unless another local namespace has it (two
    long names can be shortened to the same one only if their hashes collide; then a digest of both decides).
    """
    if wanted:
        return wanted if taken.get(wanted, local) == local else None
    name = remote_namespace(local, home)
    if taken.get(name, local) == local:
        return name
    digest = hashlib.sha256(f"{home}/{local}".encode()).hexdigest()
    return f"{local[:22].rstrip('-')}-{digest[:40]}"


def usable_answer(answered: str, local: str, taken: Mapping[str, str]) -> bool:
    """Tell whether a namespace name that the lender answered with can be used for a local namespace."""
    return is_dns_label(answered) and taken.get(answered, local) == local
