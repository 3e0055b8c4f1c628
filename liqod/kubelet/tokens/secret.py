"""Plans and forges the Secret at the lender that holds the tokens of one offloaded pod (pure).

The home cluster issues tokens for one pod: they are bound to it (invalid once it is deleted), have the audience that
the pod requests, and are renewed at 80 % of their lifetime, as by a kubelet. Annotations of the Secret name its pod and
the expiry, so that a restarted daemon continues with the existing tokens.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from attrs import field, frozen

from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import home_uid, is_of_node, is_ours, ownership
from liqod.kubelet.common.naming import label_value
from liqod.kubelet.common.views import HomePod, Shadow, decoded
from liqod.kubelet.tokens.projection import (
    DEFAULT_SECONDS,
    NAMESPACE_KEY,
    TokenSource,
    account_of,
    has_access,
    secret_name,
    sources_of,
)
from liqod.model.names import NODE_NAME_LABEL
from liqod.model.objects.meta import Object, ObjectMeta
from liqod.model.objects.pod_completion import FINISHED
from liqod.model.timestamps import from_epoch, parse_rfc3339, rfc3339

ACCOUNT_LABEL: Final = "offloading.liqo.io/service-account-name"
POD_NAME: Final = "offloading.liqo.io/service-account-for-pod-name"
POD_UID: Final = "offloading.liqo.io/service-account-for-pod-uid"
EXPIRATION: Final = "offloading.liqo.io/service-account-expiration"
RENEWED_AT: Final = 0.8
"""Fraction of a token's life after which it is renewed. Source: Kubernetes, "Configure Service Accounts for Pods"."""

OLDEST: Final = 24 * 3600.0
"""Seconds after which any token is renewed, as by a kubelet (pkg/kubelet/token, maxTTL)."""

EXTENDED: Final = 3607
"""The lifetime in seconds with which an API server makes a token for a whole year, for programs that never read theirs
again; it is that of each pod's own volume (Kubernetes, ``--service-account-extend-token-expiration``)."""

SPREAD: Final = 0.05
"""Fraction of a token's lifetime over which the renewals of pods that started together are spread."""


@frozen
class Mint:
    """Request these tokens for the service account and write them to the Secret with ``uid`` (empty: create it)."""

    account: str
    sources: tuple[TokenSource, ...]
    uid: str = ""


@frozen
class Remove:
    """Delete the Secret that has this UID."""

    uid: str


@frozen
class Rest:
    """Do nothing for so many seconds; None: until something changes."""

    seconds: float | None = None


@frozen
class Taken:
    """A Secret that is not ours has the name."""


NEVER: Final = from_epoch(0.0)
"""The expiry of tokens without a readable one: they are renewed at once."""

Step = Mint | Remove | Rest | Taken


@frozen
class Minted:
    """Tokens by their key in the Secret.

    ``expires``: when the first of them expires, by the API server's clock. ``life``: the shortest lifetime in seconds.
    """

    tokens: Mapping[str, str] = field(repr=False)
    expires: datetime
    life: float = DEFAULT_SECONDS


def plan(
    home: HomePod | None, there: Object | None, context: Context, *, now: datetime, left: float | None = None
) -> Step:
    """Return the next step for the tokens of a pod; ``now`` is the date by this host's clock.

    ``left``: seconds until the tokens that this daemon wrote must be renewed. None: it wrote none, and the expiry in
    the Secret is compared with this host's clock, which may differ from the API server's; that happens only once.
    """
    if there is not None and not (is_ours(there.metadata, context) and is_of_node(there.metadata, context)):
        return Taken() if home is not None and _wanted(home, context) else Rest()
    if there is not None and there.metadata.deleting:
        return Rest()
    wanted = _wanted(home, context) if home is not None else ()
    if home is None or not wanted:
        return Remove(there.metadata.uid) if there is not None else Rest()
    if there is not None and there.metadata.annotations.get(POD_UID) != home.metadata.uid:
        # These are the tokens of an earlier pod of that name; new ones are written when the Secret is gone.
        return Remove(there.metadata.uid)
    if there is None:
        return Rest() if home.metadata.deleting else Mint(account_of(decoded(home.spec)), wanted)
    if left is None:
        left = due_in(home.metadata.uid, wanted, there.metadata, now)
    if left > 0:
        return Rest(left)
    return Mint(account_of(decoded(home.spec)), wanted, there.metadata.uid)


def is_in_use(there: Object | None, shadow: Shadow | None) -> bool:
    """Return whether the ShadowPod of that name may run with a Secret: its pod may go on though it is missing at home.

    A ShadowPod of another home pod waits for tokens of its own.
    """
    if there is None or shadow is None:
        return False
    return home_uid(shadow.metadata) in ("", there.metadata.annotations.get(POD_UID))


def _wanted(home: HomePod, context: Context) -> tuple[TokenSource, ...]:
    if not has_access(home.metadata, context) or decoded(home.status).get("phase") in FINISHED:
        return ()
    return tuple(sources_of(decoded(home.spec)))


def due_in(uid: str, sources: Sequence[TokenSource], there: ObjectMeta, now: datetime) -> float:
    """Return the seconds until the tokens in a Secret must be renewed; 0 without a readable expiry.

    The lender can change the annotation, but by that only breaks the pods that run there.
    """
    expires = parse_rfc3339(there.annotations.get(EXPIRATION, ""))
    if expires is None:
        return 0.0
    life = float(min(source.seconds for source in sources))
    return (expires - now).total_seconds() - life + renewed_after(uid, life)


def renewed_after(uid: str, life: float) -> float:
    """Return the age in seconds at which tokens of this lifetime are renewed, spread by the UID of the pod."""
    spread = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:2]) / 65536 * SPREAD * life
    return min(life * RENEWED_AT, OLDEST) - spread


def request(source: TokenSource, pod: ObjectMeta) -> dict[str, Any]:
    """Return the TokenRequest for one token bound to a pod (authentication.k8s.io/v1, BoundObjectReference).

    It is never for a year: a lender that is not trusted any more could use it while the pod exists at home.
    """
    spec: dict[str, Any] = {
        "expirationSeconds": DEFAULT_SECONDS if source.seconds == EXTENDED else source.seconds,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid},
    }
    if source.audience:
        spec["audiences"] = [source.audience]
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def forge(pod: ObjectMeta, account: str, minted: Minted, context: Context) -> dict[str, Any]:
    """Return the Secret, used as body of a POST and as merge patch."""
    data = {**minted.tokens, NAMESPACE_KEY: pod.namespace}
    return {
        "metadata": {
            "name": secret_name(pod.name),
            "labels": {
                **ownership(context),
                NODE_NAME_LABEL: label_value(context.node_name),
                ACCOUNT_LABEL: label_value(account),
            },
            "annotations": {POD_NAME: pod.name, POD_UID: pod.uid, EXPIRATION: rfc3339(minted.expires)},
        },
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


def pod_of(there: Object) -> str:
    """Return the name of the pod of a Secret; empty unless the annotation matches the Secret's name."""
    pod = there.metadata.annotations.get(POD_NAME, "")
    return pod if pod and secret_name(pod) == there.metadata.name else ""
