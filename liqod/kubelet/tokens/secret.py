"""The secret at the lender that holds the tokens of one offloaded pod, and what is to be done about it next.

Tokens are minted by the home cluster for one pod: they are bound to it there (they end with it), keep the audience
that the pod asks for, and are renewed like a kubelet does, at four fifths of their life. The secret says whose it is
and when its tokens expire, so that a daemon that starts anew goes on with what is there.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from attrs import field, frozen

from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import is_of_node, is_ours, ownership
from liqod.kubelet.common.naming import label_value
from liqod.kubelet.common.views import HomePod, decoded
from liqod.kubelet.tokens.projection import (
    DEFAULT_SECONDS,
    NAMESPACE_KEY,
    TokenSource,
    account_of,
    is_supported,
    secret_name,
    sources_of,
)
from liqod.model.names import NODE_NAME_LABEL
from liqod.model.objects.meta import Object, ObjectMeta
from liqod.model.timestamps import from_epoch, parse_rfc3339, rfc3339

ACCOUNT_LABEL: Final = "offloading.liqo.io/service-account-name"
POD_NAME: Final = "offloading.liqo.io/service-account-for-pod-name"
POD_UID: Final = "offloading.liqo.io/service-account-for-pod-uid"
EXPIRATION: Final = "offloading.liqo.io/service-account-expiration"
RENEWED_AT: Final = 0.8
"""Part of a token's life after which it is renewed. Source: Kubernetes, "Configure Service Accounts for Pods"."""

OLDEST: Final = 24 * 3600.0
"""Seconds after which a token is renewed however long it lives, as by a kubelet."""

SPREAD: Final = 0.05
"""Part of a token's life over which the renewals of pods that began together are spread."""

FINISHED: Final = ("Succeeded", "Failed")


@frozen
class Mint:
    """Have these tokens made for the service account, and put them into the secret; ``uid`` is that of the one there.

    Without ``uid`` there is none yet.
    """

    account: str
    sources: tuple[TokenSource, ...]
    uid: str = ""


@frozen
class Remove:
    """Delete the secret that has this UID."""

    uid: str


@frozen
class Rest:
    """Nothing to do for so many seconds; None: until something changes."""

    seconds: float | None = None


@frozen
class Taken:
    """A secret that is not ours has the name."""


NEVER: Final = from_epoch(0.0)
"""When tokens expire that were never made."""

Step = Mint | Remove | Rest | Taken


@frozen
class Minted:
    """Tokens by their key in the secret; when the first of them expires (by the API server's clock), and how many
    seconds after it was made.
    """

    tokens: Mapping[str, str] = field(repr=False)
    expires: datetime
    life: float = DEFAULT_SECONDS


def plan(
    home: HomePod | None, there: Object | None, context: Context, *, now: datetime, left: float | None = None
) -> Step:
    """Return the next step for the tokens of a pod; ``now`` is the date by this host's clock.

    ``left`` is in how many seconds the tokens that this daemon put there are to be renewed; None: it put none there,
    and what the secret says is compared with this host's date, however wrong that may be: once.
    """
    if there is not None and not (is_ours(there.metadata, context) and is_of_node(there.metadata, context)):
        return Taken() if home is not None and _wanted(home) else Rest()
    if there is not None and there.metadata.deleting:
        return Rest()
    wanted = _wanted(home) if home is not None else ()
    if home is None or not wanted:
        return Remove(there.metadata.uid) if there is not None else Rest()
    if there is not None and there.metadata.annotations.get(POD_UID) != home.metadata.uid:
        # The tokens of an earlier pod of that name; new ones come when they are gone.
        return Remove(there.metadata.uid)
    if there is None:
        return Rest() if home.metadata.deleting else Mint(account_of(decoded(home.spec)), wanted)
    if left is None:
        left = due_in(home.metadata.uid, wanted, there.metadata, now)
    if left > 0:
        return Rest(left)
    return Mint(account_of(decoded(home.spec)), wanted, there.metadata.uid)


def _wanted(home: HomePod) -> tuple[TokenSource, ...]:
    if not is_supported(home.metadata.annotations) or decoded(home.status).get("phase") in FINISHED:
        return ()
    return tuple(sources_of(decoded(home.spec)))


def due_in(uid: str, sources: Sequence[TokenSource], there: ObjectMeta, now: datetime) -> float:
    """Return in how many seconds the tokens in a secret are to be renewed; 0 when it does not say legibly until when.

    What is written there is the lender's to change: it gains nothing by it but its own pods' failure.
    """
    expires = parse_rfc3339(there.annotations.get(EXPIRATION, ""))
    if expires is None:
        return 0.0
    life = float(min(source.seconds for source in sources))
    return (expires - now).total_seconds() - life + renewed_after(uid, life)


def renewed_after(uid: str, life: float) -> float:
    """Return after how many seconds tokens of that life are renewed; pods, known by their UID, do it one by one."""
    spread = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:2]) / 65536 * SPREAD * life
    return min(life * RENEWED_AT, OLDEST) - spread


def request(source: TokenSource, pod: ObjectMeta) -> dict[str, Any]:
    """Return the TokenRequest for one token, bound to a pod."""
    spec: dict[str, Any] = {
        "expirationSeconds": source.seconds,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid},
    }
    if source.audience:
        spec["audiences"] = [source.audience]
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def forge(pod: ObjectMeta, account: str, minted: Minted, context: Context) -> dict[str, Any]:
    """Return the secret, as it is created and as it is patched."""
    data = {**minted.tokens, NAMESPACE_KEY: pod.namespace}
    return {
        "metadata": {
            "name": secret_name(pod.name),
            "labels": {**labels(context), ACCOUNT_LABEL: label_value(account)},
            "annotations": {POD_NAME: pod.name, POD_UID: pod.uid, EXPIRATION: rfc3339(minted.expires)},
        },
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


def labels(context: Context) -> dict[str, str]:
    """Return the labels by which the secrets with tokens of one virtual node's pods are found."""
    return {**ownership(context), NODE_NAME_LABEL: label_value(context.node_name)}


def pod_of(there: Object) -> str:
    """Return the name of the pod that a secret is for; empty when it does not say so truly."""
    pod = there.metadata.annotations.get(POD_NAME, "")
    return pod if pod and secret_name(pod) == there.metadata.name else ""
