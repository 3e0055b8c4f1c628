"""Reads what the first screen says besides the records: pods, tenants, and whether the API server gets through.

All of it is read at the same time and within a bound. What a slow API server does not give in time is named as not
looked at, and the rest is shown.
"""

from __future__ import annotations

import secrets
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferTimeout

from liqod.agent.account.names import ACCOUNT, LEASE, NETWORK_ACCOUNT, liqodctl_as
from liqod.agent.account.rights import Right
from liqod.cli.console.session import Session
from liqod.cli.status.cluster_records import BoundedReading, cluster_records
from liqod.flow.tasks import side_by_side
from liqod.kube.errors import ApiError, Forbidden, KubeError, NotFound, ServerError
from liqod.kube.resources import (
    ACCESS_REVIEWS,
    CLUSTERROLEBINDINGS,
    FOREIGNCLUSTERS,
    LEASES,
    MUTATINGWEBHOOKS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICEACCOUNTS,
    TUNNELENDPOINTS,
    Resource,
)
from liqod.model.diagnosis.access import AccountFacts, NodeApiFacts, WebhookFacts
from liqod.model.diagnosis.cluster import ClusterRecords
from liqod.model.diagnosis.installation import Unread
from liqod.model.diagnosis.problem import PROCESSES, WORKLOADS
from liqod.model.diagnosis.processes import LEADERS
from liqod.model.diagnosis.workloads import AskingPod, FullTenant, PendingPod, UnplacedPod, full_tenants, waiting_pod
from liqod.model.names import ENABLED_LABEL, INTERNAL_ADDRESS, REMOTE_CLUSTER_LABEL, TOKEN_ANNOTATION, WEBHOOK_PROBE
from liqod.model.objects.meta import Object
from liqod.model.records.network import NETWORK_LEASE
from liqod.webhook.configuration import NAME as WEBHOOK
from liqod.webhook.configuration import Configuration
from liqod.webhook.placement import tolerates
from liqod.webhook.review import ANSWERED

T = TypeVar("T")

PAGE: Final = 500
"""Pods that wait, of this and other clusters, that are looked at."""
NODE_APIS: Final = 2
"""Virtual nodes whose API is tried: all are served by the same process, at ports beside one another."""
NODE_WITHIN: Final = 4.0
"""Seconds that the API server has to reach the API of a node."""
QUICK: Final = 2.0
"""Seconds in which an API server answered that is not slow: what it does not answer later is not its own doing."""


@attrs.frozen
class FirstScreen:
    """The records with all that is known besides, what was not looked at, and the pods on each virtual node.

    A node whose pods could not be counted in time is missing among these. ``untried`` is what of ``unread`` was to be
    tried.
    """

    facts: ClusterRecords
    unread: tuple[Unread, ...] = ()
    pods: Mapping[str, int] = {}
    untried: tuple[Unread, ...] = ()

    def with_trials_of(self, before: FirstScreen) -> FirstScreen:
        """Return the same with what another one has tried, or could not try."""
        facts, known = self.facts, before.facts
        accounts = facts.accounts or [one for one in known.accounts if one.works]
        tried = attrs.evolve(facts, webhook=known.webhook, node_apis=known.node_apis, accounts=accounts)
        unread = (*(one for one in self.unread if one not in self.untried), *before.untried)
        return attrs.evolve(self, facts=tried, unread=unread, untried=before.untried)


async def first_screen(session: Session, *, tries: bool = True, counts: bool = True) -> FirstScreen:
    """Read what the first screen takes; what the API server does not give in time is named in ``unread``.

    ``tries``: the API server is asked whether it gets through to the daemon, and what the account of one that works
    may do; nothing is stored by that. ``counts``: pods are counted. Raises KubeError where nothing can be read, or the
    user may not.
    """
    bounded, trials = BoundedReading(session), BoundedReading(session)

    async def within(topic: str, what: str, reading: Coroutine[Any, Any, T], by: BoundedReading = bounded) -> T | None:
        try:
            return await by.within((topic, what), reading, raises=(Forbidden,))
        except Forbidden:
            return None  # Who may not see it need not read that each time.

    async def of_records() -> FirstScreen:
        facts = await cluster_records(session, bounded)
        is_quick = bounded.passed < QUICK
        is_led = tries and facts.leader is not None and facts.leader.alive
        reading: list[Coroutine[Any, Any, Any]] = [
            within(PROCESSES, "the daemon's account", _accounts(session, facts, working=is_led)),
            within(PROCESSES, "the webhook", _webhook(session, facts) if is_led else _nothing(), trials),
            within(PROCESSES, "nodes", _node_apis(session, facts, is_quick=is_quick) if is_led else _nothing(), trials),
            within(WORKLOADS, "the number of pods", pods_by_node(session, facts) if counts else _nothing()),
        ]
        accounts, webhook, apis, pods = await side_by_side(reading)
        known = attrs.evolve(facts, accounts=accounts or (), webhook=webhook, node_apis=apis or ())
        return FirstScreen(known, pods=pods or {})

    screen: FirstScreen
    beside: list[Coroutine[Any, Any, Any]] = [
        of_records(),
        within(WORKLOADS, "pods that wait", side_by_side([_pending(session), _asking(session)])),
        within(WORKLOADS, "namespaces of tenants", _tenants(session)),
    ]
    screen, pods, tenants = await side_by_side(beside)
    now = screen.facts.read_at or datetime.now(UTC)
    pending, asking = pods or (None, ())
    waiting = None if pending is None else [one for pod in pending if (one := waiting_pod(pod, now)) is not None]
    return attrs.evolve(
        screen,
        facts=attrs.evolve(screen.facts, waiting=waiting, tenants=tenants, asking=asking),
        unread=(*bounded.unread, *trials.unread),
        untried=tuple(trials.unread),
    )


async def _nothing() -> None:
    """Read nothing."""


async def pods_by_node(session: Session, facts: ClusterRecords) -> dict[str, int]:
    """Return the number of pods on each virtual node."""
    names = [node.metadata.name for node in facts.nodes]
    reading = [session.client.list(PODS, view=Object, fields=f"spec.nodeName={name}") for name in names]
    listings = await side_by_side(reading)
    return {name: len(listing.items) for name, listing in zip(names, listings, strict=True)}


async def _pending(session: Session) -> list[PendingPod]:
    """Return pods on nodes that wait; the real nodes' among them are left out by the diagnosis."""
    fields = "status.phase=Pending,spec.nodeName!="
    return (await session.client.page(PODS, "", PendingPod, fields=fields, limit=PAGE)).items or []


async def _asking(session: Session) -> list[AskingPod]:
    """Return pods on no node that ask for virtual nodes, once the scheduler had a look at them."""
    fields = "status.phase=Pending,spec.nodeName="
    unplaced = (await session.client.page(PODS, "", UnplacedPod, fields=fields, limit=PAGE)).items or []
    found = [pod for pod in unplaced if pod.asks and pod.words and not pod.metadata.deleting]
    if not found:
        return []
    labels = f"{ENABLED_LABEL}=true"
    enabled = {one.metadata.name for one in (await session.client.list(NAMESPACES, view=Object, labels=labels)).items}
    return [
        AskingPod(
            key=pod.key,
            enabled=pod.metadata.namespace in enabled,
            tolerant=tolerates(list(pod.spec.tolerations or ())),
            words=pod.words,
        )
        for pod in found
    ]


async def _tenants(session: Session) -> list[FullTenant]:
    return full_tenants((await session.client.list(NAMESPACES, view=Object, labels=REMOTE_CLUSTER_LABEL)).items)


# What may keep the daemon from its work, where it does none


async def _accounts(session: Session, facts: ClusterRecords, *, working: bool) -> list[AccountFacts]:
    """Return the accounts of processes that do not run, and with ``working`` that of the daemon that leads."""
    namespace = session.settings.kubernetes.namespace
    asking = []
    leads = facts.leader is not None and facts.leader.alive
    if facts.knows_leader and (working or not leads):
        rights = [Right("get", LEASES, name=LEASE, namespace=namespace), Right("list", FOREIGNCLUSTERS)]
        role = next((one.role for one in facts.processes if one.role in LEADERS), "all")
        asking.append(_account(session, ACCOUNT, role, rights, works=leads))
    if facts.agent is not None and (working or not facts.agent.alive):
        rights = [Right("get", LEASES, name=NETWORK_LEASE, namespace=namespace), Right("list", TUNNELENDPOINTS)]
        asking.append(_account(session, NETWORK_ACCOUNT, "network", rights, works=facts.agent.alive))
    return await side_by_side(asking)


async def _account(session: Session, name: str, role: str, rights: list[Right], *, works: bool) -> AccountFacts:
    namespace = session.settings.kubernetes.namespace
    user = f"system:serviceaccount:{namespace}:{name}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    asked: list[Coroutine[Any, Any, Any]] = [
        _login(session, name, namespace),
        _found(session, CLUSTERROLEBINDINGS, name),
        *(_may(session, {"user": user, "groups": groups}, right) for right in rights),
    ]
    (exists, has_token), is_bound, *may = await side_by_side(asked)
    return AccountFacts(
        name=f"{namespace}/{name}",
        exists=exists,
        has_token=has_token,
        is_bound=is_bound,
        lacks=tuple(str(right) for right, allowed in zip(rights, may, strict=True) if not allowed),
        works=works,
        liqodctl=liqodctl_as(role),
    )


async def _login(session: Session, name: str, namespace: str) -> tuple[bool, bool]:
    """Return whether an account is there, and the Secret of its tokens, as far as one was written to a kubeconfig."""
    account = await _object(session, SERVICEACCOUNTS, name, namespace)
    if account is None:
        return False, False
    # A pod has a token of another kind: without a kubeconfig that was written none is missed.
    bound_to = account.metadata.annotations.get(TOKEN_ANNOTATION, "")
    return True, not bound_to or await _found(session, SECRETS, bound_to, namespace)


async def _object(session: Session, resource: Resource, name: str, namespace: str = "") -> Object | None:
    try:
        return await session.client.get(resource, name, namespace, view=Object)
    except NotFound:
        return None


async def _found(session: Session, resource: Resource, name: str, namespace: str = "") -> bool:
    return await _object(session, resource, name, namespace) is not None


async def _may(session: Session, who: dict[str, Any], right: Right) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.resource.group,
        "resource": right.resource.plural,
        "name": right.name,
        "namespace": right.namespace,
    }
    body = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {**who, "resourceAttributes": attributes},
    }
    answer: dict[str, Any] = await session.client.create(ACCESS_REVIEWS, body)
    return bool((answer.get("status") or {}).get("allowed"))


# Whether the API server gets through to the daemon


async def _webhook(session: Session, facts: ClusterRecords) -> WebhookFacts | None:
    """Return whether the API server asks the webhook, by a pod that is tried where one is offloaded: a dry run."""
    holder = facts.leader.holder if facts.leader is not None else ""
    # One that led before it died says so for a while.
    leading = next((one for one in facts.processes if one.is_working and one.identity == holder), None)
    if leading is None or leading.role not in LEADERS or not leading.webhook:
        return None
    client = session.client
    try:
        found = await client.get(MUTATINGWEBHOOKS, WEBHOOK, view=Configuration)
    except NotFound:
        found = Configuration()
    called = [str(hook.get("clientConfig", {}).get("url") or "") for hook in found.webhooks]
    if not called or ("://" in leading.webhook and leading.webhook not in called):
        return WebhookFacts(leading.webhook, configured=False)
    offloaded = await client.page(NAMESPACES, "", Object, labels=f"{ENABLED_LABEL}=true", limit=1)
    if not offloaded.items:
        return WebhookFacts(leading.webhook, configured=True)
    try:
        tried: dict[str, Any] = await client.create(
            PODS, trial_pod(), offloaded.items[0].metadata.name, dry_run=True, manager="liqodctl"
        )
    except ApiError:
        # By quota, Pod Security or a policy, perhaps only after the webhook was asked: it says nothing of that.
        return WebhookFacts(leading.webhook, configured=True)
    said = ((tried.get("metadata") or {}).get("annotations") or {}).get(WEBHOOK_PROBE)
    return WebhookFacts(leading.webhook, configured=True, answered=said == ANSWERED)


def trial_pod() -> dict[str, Any]:
    """Return a pod that no level of Pod Security and few quotas refuse; it is never stored. Pure but for its name."""
    container = {
        "name": "none",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 65535,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    name = f"liqod-webhook-probe-{secrets.token_hex(4)}"
    return {
        "metadata": {"name": name, "annotations": {WEBHOOK_PROBE: "asked"}},
        "spec": {"containers": [container], "automountServiceAccountToken": False},
    }


async def _node_apis(session: Session, facts: ClusterRecords, *, is_quick: bool) -> list[NodeApiFacts]:
    """Return whether the API server reaches the API of the first virtual nodes; those that it cannot tell are left out.

    ``is_quick``: the API server answers quickly, so that no answer in time is none of the node.
    """
    wanted = [(record.spec.node_name, record.status.kubelet_port) for record in facts.virtual_nodes]
    some = [(name, port) for name, port in wanted if port and facts.node(name) is not None][:NODE_APIS]
    trying = [_node_trouble(session, name, is_quick=is_quick) for name, _ in some]
    found = []
    for (name, port), trouble in zip(some, await side_by_side(trying), strict=True):
        node = facts.node(name)
        if node is not None and trouble is not None:
            addresses = [one.address for one in node.status.addresses if one.type == INTERNAL_ADDRESS]
            found.append(NodeApiFacts(name, next(iter(addresses), ""), port, trouble))
    return found


async def _node_trouble(session: Session, node: str, *, is_quick: bool) -> str | None:
    """Return why the API server does not reach the API of a node; empty: it does, None: that is not known."""
    asking = Deferred.fromCoroutine(session.client.raw("GET", f"/api/v1/nodes/{quote(node, safe='')}/proxy/healthz"))
    asking.addTimeout(NODE_WITHIN, session.reactor)
    try:
        await asking
    except DeferTimeout:
        return f"no answer within {NODE_WITHIN:.0f} s" if is_quick else None
    except ServerError as error:
        return _of_proxy(error)
    except Forbidden as error:
        # These are the words of a virtual node; the API server's own are others.
        return "" if "may not" in error.message else None
    except ApiError:
        return ""
    except KubeError:
        return None
    return ""


def _of_proxy(error: ServerError) -> str | None:
    """Return what the API server says of a node that it did not reach; None for another failure. Pure.

    Source: k8s.io/apimachinery, pkg/util/proxy/transport.go, ``RoundTrip``.
    """
    marker = "trying to reach service"
    if marker in error.message.lower() or error.code in (502, 504):
        return error.message.rpartition("service: ")[2].strip("'\" ") or error.message
    return None
