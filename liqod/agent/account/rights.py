"""What the daemon must be allowed to do in its own cluster: for its role, and to find out what it is not.

Rights are as narrow as RBAC can say: by name where names are fixed, in one namespace where it is always the same. What
concerns tenants and offloaded namespaces is cluster-wide, because these namespaces come and go while the daemon runs,
and a right in a namespace that does not exist yet cannot be given. ``create``, ``list`` and ``watch`` know no names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred

from liqod.agent.account.names import LEASE, account_of
from liqod.config.schema import Settings
from liqod.fabric.agent import key as tunnel
from liqod.facts.observed import PLACES
from liqod.flow.tasks import together
from liqod.hosting.tenants import policies
from liqod.hosting.tenants import rights as borrowers
from liqod.hosting.tenants.bounds import NAME as BOUNDS
from liqod.hosting.tenants.contract import Contract
from liqod.kube import resources as kinds
from liqod.kube.client import Client
from liqod.kube.errors import ApiError, Unauthorized
from liqod.kube.resources import Resource
from liqod.kubelet.api.certificate import REQUESTS
from liqod.kubelet.api.service import AUTHENTICATION
from liqod.kubelet.node.forge import LEASE_NAMESPACE
from liqod.metrics.certificate import SECRET as METRICS_SECRET
from liqod.model.names import CREDENTIAL_SECRET
from liqod.model.records.name_service import SLOTS, object_name
from liqod.model.records.network import GATEWAY_NAME, NETWORK_LEASE
from liqod.model.records.rotation import IDENTITY_SECRET
from liqod.model.records.unpeering import TOMBSTONES
from liqod.webhook.configuration import NAME as WEBHOOK
from liqod.webhook.service import SECRET_NAME as WEBHOOK_SECRET

_REVIEW: Final = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)
SIGNERS: Final = Resource("certificates.k8s.io", "v1", "signers", "Signer", False)
AT_ONCE: Final = 8
"""Access reviews that are asked for at the same time."""


@attrs.frozen
class Right:
    """One verb on one kind of object: everywhere or in one namespace, on all objects or on the named one."""

    verb: str
    resource: Resource
    subresource: str = ""
    name: str = ""
    namespace: str = ""

    @property
    def what(self) -> str:
        """The resource as roles name it."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    def __str__(self) -> str:
        kind = f"{self.resource}/{self.subresource}" if self.subresource else str(self.resource)
        where = f" in the namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {kind}{f' named {self.name}' if self.name else ''}{where}"


def required(settings: Settings) -> tuple[Right, ...]:
    """Return the rights that a daemon with these settings uses, each once."""
    own, account = settings.kubernetes.namespace, account_of(settings.daemon.role)
    if settings.daemon.role == "network":
        agent = [*_own_token(own, account), *_gateway_agent(own), *_overlay_node(), *_own_lease(own)]
        return tuple(dict.fromkeys([*agent, *_callers(settings)]))
    if settings.daemon.role == "names":
        return (*_own_token(own, account), *_names(own), *_callers(settings))
    if settings.network.role == "node":
        return (*_own_token(own, account), *_overlay_node(), *_own_lease(own), *_callers(settings))
    wanted = [*_own_token(own, account), *_own_lease(own), *_home(own), *_facts(own), *_peering(), *_kubelets()]
    wanted += _hosting(Contract.of(settings))
    if settings.peering.api != "direct":
        # What the relay passes on it sends as the borrower's account; as nobody else, whatever a borrower says.
        wanted += _verbs(kinds.SERVICEACCOUNTS, "impersonate", names=[borrowers.SERVICE_ACCOUNT])
    if settings.kubernetes.leader_services:
        wanted += _leader_services(own)
    if settings.webhook.enabled:
        wanted += _webhook(own)
    if settings.kubelet.listen:
        wanted += _node_api(settings.kubelet.signer)
    wanted += _reflection(settings)
    wanted += [*_callers(settings), *_certificate(settings)]
    if settings.network.mode != "none":
        wanted += _network(own)
        wanted += _gateway_record(own) if settings.daemon.role == "control" else _tunnel_key(own)
    if settings.names.enabled:
        wanted += _name_services(own)
        wanted += _names(own) if settings.daemon.role == "all" else []
    all_of_them = set(wanted)
    return tuple(right for right in dict.fromkeys(wanted) if not (_wider(right) & all_of_them))


def _wider(right: Right) -> set[Right]:
    """Return the rights that give a right among others."""
    wider = {
        attrs.evolve(right, name=""),
        attrs.evolve(right, namespace=""),
        attrs.evolve(right, name="", namespace=""),
    }
    return wider - {right}


def _verbs(
    resource: Resource, *verbs: str, subresource: str = "", names: Sequence[str] = ("",), namespace: str = ""
) -> Iterator[Right]:
    for name in names:
        for verb in verbs:
            yield Right(verb, resource, subresource, name, namespace)


def _record(resource: Resource, *verbs: str) -> Iterator[Right]:
    """The rights on a kind of our own: to follow it and write its status, and whatever else is named."""
    yield from _verbs(resource, "list", "watch", *verbs)
    yield from _verbs(resource, "patch", subresource="status")


def _own_token(own: str, account: str) -> Iterator[Right]:
    """To renew its own token; an admission policy says for how long, and what it is bound to."""
    yield from _verbs(kinds.SERVICEACCOUNTS, "create", subresource="token", names=[account], namespace=own)


def _home(own: str) -> Iterator[Right]:
    # Patched are the labels of granted namespaces, deleted the namespaces that were made for a peer.
    yield from _verbs(kinds.NAMESPACES, "get", "list", "watch", "create", "patch", "delete")
    yield from _verbs(kinds.CRDS, "get")
    yield from _verbs(kinds.EVENTS, "create", "patch")
    yield from _verbs(kinds.LEASES, "create", namespace=own)
    # A daemon that stands by sees at once when it is let go, or not renewed.
    yield from _verbs(kinds.LEASES, "get", "list", "watch", "update", names=[LEASE], namespace=own)
    yield from _verbs(kinds.SECRETS, "create", namespace=own)
    yield from _verbs(kinds.SECRETS, "get", names=[IDENTITY_SECRET], namespace=own)
    # Pairing tokens and invitations, whose names nobody knows beforehand.
    yield from _verbs(kinds.SECRETS, "get", "list", "watch", "patch", "delete", namespace=own)
    # The note of whom peerings were ended with.
    yield from _verbs(kinds.CONFIGMAPS, "create", namespace=own)
    yield from _verbs(kinds.CONFIGMAPS, "get", "patch", names=[TOMBSTONES], namespace=own)


def _own_lease(own: str) -> Iterator[Right]:
    """To say by a Lease that this process runs; its name has that of the host, which nobody knows beforehand.

    What the account of network agents, which is on many hosts, may write so, an admission policy keeps to its own.
    """
    yield from _verbs(kinds.LEASES, "create", "patch", namespace=own)


def _facts(own: str) -> Iterator[Right]:
    """To keep the record, and to read the sources of the cluster's facts, mostly by name; none of it is secret."""
    yield from _record(kinds.CLUSTERFACTS, "create")
    # Where ServiceCIDRs are not served, the API server's refusal of an address says what the network is.
    yield from _verbs(kinds.SERVICES, "create", namespace=own)
    for place in PLACES:
        # A namespace that is not in every cluster may not exist when the roles are made.
        where = place.namespace if place.namespace in ("kube-system", "default") else ""
        verb = "get" if place.name else "list"
        yield from _verbs(place.resource, verb, names=[place.name], namespace=where)


def _peering() -> Iterator[Right]:
    yield from _record(kinds.FOREIGNCLUSTERS, "get", "create", "patch", "delete")
    yield from _record(kinds.SEARCHDOMAINS)
    yield from _record(kinds.ADVERTISEMENTS, "get", "create", "patch", "delete")
    # Those of slices follow their records.
    yield from _record(kinds.VIRTUALNODES, "create", "patch", "delete")
    yield from _record(kinds.RESOURCESLICES, "patch")
    for resource in (kinds.NODES, kinds.PODS, kinds.STORAGECLASSES, kinds.INGRESSCLASSES):
        yield from _verbs(resource, "list", "watch")
    # The credential for a lender lies in the lender's tenant namespace, which is made at the same moment.
    yield from _verbs(kinds.SECRETS, "create")
    yield from _verbs(kinds.SECRETS, "get", "patch", "delete", "list", "watch", names=[CREDENTIAL_SECRET])


def _kubelets() -> Iterator[Right]:
    # The names of virtual nodes are made of the names of peers, which nobody knows beforehand. The daemon touches no
    # node without its own label.
    yield from _verbs(kinds.NODES, "get", "create", "patch", "delete")
    yield from _verbs(kinds.NODES, "patch", subresource="status")
    yield from _verbs(kinds.LEASES, "create", "patch", "delete", namespace=LEASE_NAMESPACE)
    yield from _record(kinds.NATTINGTABLES, "get", "create", "patch", "delete")
    yield from _record(kinds.NAMESPACEOFFLOADINGS)
    # Patched are the tolerations of pods whose lender is away.
    yield from _verbs(kinds.PODS, "get", "patch", "delete")
    yield from _verbs(kinds.PODS, "patch", subresource="status")
    yield from _verbs(kinds.PODS, "create", subresource="eviction")


def _hosting(contract: Contract) -> Iterator[Right]:
    yield from _record(kinds.SHADOWPODS, "get")
    yield from _verbs(kinds.SHADOWENDPOINTSLICES, "list", "watch")
    yield from _verbs(kinds.ENDPOINTSLICES, "list", "watch", "create", "patch", "delete")
    yield from _verbs(kinds.SHADOWNETWORKPOLICYSETS, "get", "list", "watch")
    # Their names are made of those at home, which nobody knows beforehand; an admission policy keeps this to tenants'
    # namespaces.
    yield from _verbs(kinds.NETWORKPOLICIES, "list", "watch", "create", "patch", "delete")
    # What is left in a namespace that is being deleted takes no traffic; a policy keeps this to tenants' namespaces.
    for resource in (kinds.SERVICES, kinds.INGRESSES, kinds.HTTPROUTES, kinds.GRPCROUTES):
        yield from _verbs(resource, "list", "patch")
    # A slice of a borrower is made while the service that it names is the borrower's too.
    yield from _verbs(kinds.SERVICES, "watch")
    yield from _verbs(kinds.PODS, "create", "patch")
    # What changes in place in the pods of borrowers.
    for subresource in ("resize", "ephemeralcontainers"):
        yield from _verbs(kinds.PODS, "patch", subresource=subresource)
    # Tokens of borrowers' accounts: the right to those of any account, which reflection needs, is as good as all rights
    # where no admission policy binds it.
    yield from _verbs(kinds.SERVICEACCOUNTS, "create")
    yield from _verbs(kinds.SERVICEACCOUNTS, "get", "patch", "delete", names=[borrowers.SERVICE_ACCOUNT])
    yield from _verbs(kinds.SERVICEACCOUNTS, "create", subresource="token", names=[borrowers.SERVICE_ACCOUNT])
    yield from _verbs(kinds.ROLES, "create")
    yield from _verbs(kinds.ROLES, "get", "patch", "delete", names=[borrowers.TENANT_ROLE])
    yield from _verbs(kinds.ROLEBINDINGS, "create")
    names = [borrowers.BORROWER_ROLE, borrowers.TENANT_ROLE]
    yield from _verbs(kinds.ROLEBINDINGS, "get", "patch", "delete", names=names)
    # What bounds a granted namespace.
    for resource in (kinds.RESOURCEQUOTAS, kinds.LIMITRANGES):
        yield from _verbs(resource, "create")
        yield from _verbs(resource, "get", "patch", "delete", names=[BOUNDS])
    # What the quotas of a tenant's namespaces have counted; nothing is read in other quotas.
    yield from _verbs(kinds.RESOURCEQUOTAS, "list", "watch", names=[BOUNDS])
    if contract.granted.tenant_contents:
        # The sizes of what tenants write; a label selects theirs, which RBAC cannot say.
        for resource in (kinds.CONFIGMAPS, kinds.SECRETS):
            yield from _verbs(resource, "list", "watch")
    # `liqodctl install` makes the borrowers' role. To bind that one role is all that it takes to give it on: neither
    # writing it nor its rights (exec into any pod, all secrets) are needed.
    yield from _verbs(kinds.CLUSTERROLES, "get", "bind", names=[borrowers.BORROWER_ROLE])
    for resource, objects in (
        (kinds.VALIDATINGPOLICIES, policies.policies()),
        (kinds.VALIDATINGPOLICYBINDINGS, policies.bindings()),
    ):
        yield from _verbs(resource, "get", names=[str(one["metadata"]["name"]) for one in objects])
    if contract.makes_priority_class:
        yield from _verbs(kinds.PRIORITYCLASSES, "get", names=[contract.granted.priority_class])


def _leader_services(own: str) -> Iterator[Right]:
    yield from _verbs(kinds.SERVICES, "list", "watch", namespace=own)
    yield from _verbs(kinds.ENDPOINTSLICES, "list", "watch", "create", "patch", "delete", namespace=own)


def _webhook(own: str) -> Iterator[Right]:
    yield from _verbs(kinds.SECRETS, "get", "update", names=[WEBHOOK_SECRET], namespace=own)
    yield from _verbs(kinds.MUTATINGWEBHOOKS, "create")
    yield from _verbs(kinds.MUTATINGWEBHOOKS, "get", "list", "watch", "patch", names=[WEBHOOK])
    # Pods that were created while nobody served the webhook get their toleration afterwards.
    yield from _verbs(kinds.PODS, "list", "patch")


def _node_api(signer: str) -> Iterator[Right]:
    where = AUTHENTICATION
    yield from _verbs(kinds.CONFIGMAPS, "list", "watch", names=[where.name], namespace=where.namespace)
    yield from _verbs(kinds.TOKEN_REVIEWS, "create")
    yield from _verbs(kinds.ACCESS_REVIEWS, "create")
    yield from _verbs(REQUESTS, "list", "watch", "create", "delete")
    yield from _verbs(REQUESTS, "patch", subresource="approval")
    yield from _verbs(SIGNERS, "approve", names=[signer])


def _callers(settings: Settings) -> Iterator[Right]:
    """To find out who may read the metrics."""
    if settings.metrics.listen and settings.metrics.authentication == "kubernetes":
        yield from _verbs(kinds.TOKEN_REVIEWS, "create")
        yield from _verbs(kinds.ACCESS_REVIEWS, "create")


def _certificate(settings: Settings) -> Iterator[Right]:
    """To keep the certificate that all daemons show there."""
    own = settings.kubernetes.namespace
    if settings.metrics.listen and settings.metrics.tls == "own":
        yield from _verbs(kinds.SECRETS, "create", namespace=own)
        yield from _verbs(kinds.SECRETS, "get", "update", names=[METRICS_SECRET], namespace=own)


def _reflection(settings: Settings) -> Iterator[Right]:
    """Offloaded namespaces are those that somebody labels, so any may become one; its secrets go with its pods."""
    reflection = settings.reflection
    for section, resource in (
        (reflection.configmap, kinds.CONFIGMAPS),
        (reflection.secret, kinds.SECRETS),
        (reflection.service, kinds.SERVICES),
        (reflection.endpointslice, kinds.ENDPOINTSLICES),
        (reflection.ingress, kinds.INGRESSES),
        (reflection.httproute, kinds.HTTPROUTES),
        (reflection.grpcroute, kinds.GRPCROUTES),
    ):
        if section.workers:
            yield from _verbs(resource, "list", "watch")
    if reflection.networkpolicy.workers:
        # Which namespaces and pods home's policies name; both are watched anyhow.
        for resource in (kinds.NETWORKPOLICIES, kinds.NAMESPACES, kinds.PODS):
            yield from _verbs(resource, "list", "watch")
    if settings.storage.enabled:
        # What a claim waits for may be in any namespace; ours are those behind claims of this cluster.
        yield from _verbs(kinds.STORAGECLASSES, "create")
        yield from _verbs(kinds.PERSISTENTVOLUMECLAIMS, "list", "watch", "patch")
        yield from _verbs(kinds.PERSISTENTVOLUMECLAIMS, "create", "delete", namespace=settings.storage.namespace)
        yield from _verbs(kinds.PERSISTENTVOLUMES, "get", "list", "watch", "create", "delete")
    if settings.kubelet.enable_apiserver_support and reflection.serviceaccount.workers:
        # Tokens of whatever accounts offloaded pods run as, bound to these pods; where their API server is found.
        yield from _verbs(kinds.SERVICEACCOUNTS, "create", subresource="token")
        yield from _verbs(kinds.ENDPOINTSLICES, "list", "watch")


def _network(own: str) -> Iterator[Right]:
    yield from _record(kinds.NETWORKCONFIGS, "create", "patch", "delete")
    yield from _record(kinds.TUNNELENDPOINTS, "create", "patch", "delete")


def _tunnel_key(own: str) -> Iterator[Right]:
    yield from _verbs(kinds.SECRETS, "get", names=[tunnel.SECRET], namespace=own)


def _gateway_record(own: str) -> Iterator[Right]:
    """What control needs where the network agent is another process: to see its report and that it runs, and to say
    what is wanted.
    """
    yield from _verbs(kinds.NETWORKGATEWAYS, "list", "watch")
    yield from _verbs(kinds.NETWORKGATEWAYS, "patch", names=[GATEWAY_NAME])
    yield from _verbs(kinds.LEASES, "list", "watch", names=[NETWORK_LEASE], namespace=own)


def _gateway_agent(own: str) -> Iterator[Right]:
    """What a network agent needs that is a process of its own: it reads specs, and writes status."""
    yield from _verbs(kinds.NETWORKCONFIGS, "list", "watch")
    yield from _verbs(kinds.TUNNELENDPOINTS, "list", "watch")
    yield from _verbs(kinds.TUNNELENDPOINTS, "patch", subresource="status")
    yield from _verbs(kinds.NETWORKGATEWAYS, "list", "watch", "create")
    yield from _verbs(kinds.NETWORKGATEWAYS, "patch", subresource="status", names=[GATEWAY_NAME])
    yield from _verbs(kinds.SECRETS, "create", namespace=own)
    yield from _verbs(kinds.SECRETS, "get", "patch", "list", "watch", names=[tunnel.SECRET], namespace=own)
    yield from _verbs(kinds.LEASES, "create", namespace=own)
    yield from _verbs(kinds.LEASES, "get", "update", names=[NETWORK_LEASE], namespace=own)


def _overlay_node() -> Iterator[Right]:
    """What a daemon needs that only leads its host's pods to the gateway."""
    yield from _verbs(kinds.TUNNELENDPOINTS, "list", "watch")
    # Its own Node says that this host takes part.
    yield from _verbs(kinds.NODES, "list", "watch", "patch")


def _name_services(own: str) -> Iterator[Right]:
    """What control needs to lead tenants to a name service; it has their namespaces and EndpointSlices anyhow."""
    yield from _verbs(kinds.SERVICES, "list", "watch", "create")
    yield from _verbs(kinds.SERVICES, "patch", names=[object_name(slot) for slot in SLOTS])
    yield from _verbs(kinds.LEASES, "list", "watch", namespace=own)


def _names(own: str) -> Iterator[Right]:
    """What a process needs that answers for names: which namespaces are whose, which networks are this cluster's, and
    to say where it is.
    """
    yield from _verbs(kinds.NAMESPACES, "list", "watch")
    yield from _verbs(kinds.SERVICES, "list", "watch")
    yield from _verbs(kinds.CLUSTERFACTS, "list", "watch")
    yield from _verbs(kinds.LEASES, "create", namespace=own)
    leases = [object_name(slot) for slot in SLOTS]
    yield from _verbs(kinds.LEASES, "patch", "delete", names=leases, namespace=own)


async def missing(client: Client, settings: Settings) -> list[Right]:
    """Return the rights that the daemon lacks."""
    return await lacking(client, required(settings))


async def lacking(client: Client, wanted: Sequence[Right]) -> list[Right]:
    """Return those of some rights that we lack; for a cluster administrator it takes one review."""
    everything = Right("*", Resource("*", "*", "*", "*", False))
    if not wanted or await may(client, everything):
        return []
    answers = await together(Deferred.fromCoroutine(_refused(client, wanted[part::AT_ONCE])) for part in range(AT_ONCE))
    refused = {right for answer in answers for right in answer}
    return [right for right in wanted if right in refused]


async def _refused(client: Client, wanted: Iterable[Right]) -> list[Right]:
    return [right for right in wanted if not await may(client, right)]


async def may(client: Client, right: Right) -> bool:
    """Ask the API server whether we have a right; a server without access reviews lets everyone."""
    attributes: dict[str, Any] = {
        "verb": right.verb,
        "group": right.resource.group,
        "resource": right.resource.plural,
        "subresource": right.subresource,
        "name": right.name,
        "namespace": right.namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer: dict[str, Any] = await client.create(_REVIEW, body)
    except Unauthorized:
        raise
    except ApiError as error:
        if error.code in (404, 405):
            return True
        raise
    return bool(answer.get("status", {}).get("allowed"))
