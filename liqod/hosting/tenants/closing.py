"""Disables services, ingresses and routes of namespaces that are being deleted; ends the pods of dismissed tenants.

Finalizers keep an object, and with it the namespace, as long as their owners like: those of controllers of this cluster
that are slow or gone. What takes traffic must not do that any longer when its tenant has left; the finalizers stay,
since somebody's resources may depend on them. A load balancer whose service needs none any more is released. A pod
whose grace period its tenant chose would run on for as long as an hour.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import suppress
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, watch
from liqod.hosting.tenants.rights import SERVICE_ACCOUNT
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import ApiError, Conflict, NotFound
from liqod.kube.resources import GRPCROUTES, HTTPROUTES, INGRESSES, PODS, SERVICEACCOUNTS, SERVICES, Resource
from liqod.model.ids import Key
from liqod.model.names import CLOSED_LABEL, tenant_namespace
from liqod.model.objects.granted_namespace import tenant_of
from liqod.model.objects.meta import Object, View

AGAIN: Final = 30.0
"""Seconds until a namespace that is still being deleted is looked at again: the objects in it are not watched."""
LAST_GRACE: Final = 60
"""Seconds that a pod of a dismissed tenant may take to end, from when its namespace is looked at."""
_SELECTS_NONE: Final = {CLOSED_LABEL: "true"}
NOWHERE: Final = "closed.invalid"
"""A host that no client asks for (RFC 6761)."""
CLASS: Final = "liqod-closed"
_SOURCE_RANGES: Final = "service.beta.kubernetes.io/load-balancer-source-ranges"
_OLD_CLASS: Final = "kubernetes.io/ingress.class"


class ServiceSpec(View, frozen=True):
    """What decides where a service leads, and who else works for it."""

    type: str = "ClusterIP"
    selector: dict[str, str] = {}
    external_name: str = ""


class Service(Object, frozen=True):
    """A service, as far as disabling it needs."""

    spec: ServiceSpec = ServiceSpec()


class IngressRule(View, frozen=True):
    """The host of a rule; empty for all."""

    host: str = ""


class IngressSpec(View, frozen=True):
    """Which hosts an ingress takes, and which controller's it is."""

    ingress_class_name: str = ""
    rules: list[IngressRule] = []


class Ingress(Object, frozen=True):
    """An ingress, as far as disabling it needs."""

    spec: IngressSpec = IngressSpec()


class RouteSpec(View, frozen=True):
    """Which gateways a route is of, and which hosts it takes there."""

    parent_refs: list[Any] = []
    hostnames: list[str] = []


class Route(Object, frozen=True):
    """A route of the Gateway API, as far as disabling it needs."""

    spec: RouteSpec = RouteSpec()


def close_service(service: Service) -> dict[str, Any] | None:
    """Return the merge patch after which a service leads nowhere, at no port of nodes or load balancer; None if so.

    The API server drops what belongs to the former type (registry/core/service, ``dropTypeDependentFields``), but the
    source ranges: it refuses those of other types than LoadBalancer (apis/core/validation, ``ValidateService``).
    """
    if service.spec.type == "ExternalName":
        return None if service.spec.external_name == NOWHERE else {"spec": {"externalName": NOWHERE}}
    if service.spec.type == "ClusterIP" and service.spec.selector == _SELECTS_NONE:
        return None
    spec = {
        "type": "ClusterIP",
        "selector": {**dict.fromkeys(service.spec.selector), **_SELECTS_NONE},
        "externalIPs": None,
        "loadBalancerSourceRanges": None,
    }
    return {"metadata": {"annotations": {_SOURCE_RANGES: None}}, "spec": spec}


def close_ingress(ingress: Ingress) -> dict[str, Any] | None:
    """Return the merge patch after which an ingress is of no controller and takes no host; None if it is so."""
    hosts = [rule.host for rule in ingress.spec.rules]
    if ingress.spec.ingress_class_name == CLASS and hosts == [NOWHERE]:
        return None
    return {
        "metadata": {"annotations": {_OLD_CLASS: None}},
        "spec": {"ingressClassName": CLASS, "rules": [{"host": NOWHERE}], "tls": None, "defaultBackend": None},
    }


def close_route(route: Route) -> dict[str, Any] | None:
    """Return the merge patch after which a route is of no gateway and takes no host; None if it is so."""
    if not route.spec.parent_refs and route.spec.hostnames == [NOWHERE]:
        return None
    return {"spec": {"parentRefs": None, "hostnames": [NOWHERE], "rules": None}}


class ClosingNamespaces(Controller[Key]):
    """Reconciles each granted namespace that is being deleted with what must not take traffic any more."""

    name = "closing-namespaces"
    workers = 2
    _log = Logger()

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        namespaces: Informer[Object],
        *,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._client = client
        self._namespaces = namespaces

    def sources(self) -> Iterable[Source[Key]]:
        """Namespaces that begin to be deleted; how that goes on is in their conditions, and not of interest."""
        yield watch(self._namespaces, self._changed)

    def fair_by(self, key: Key) -> Hashable:
        """Return the tenant of a namespace."""
        return tenant_of(self._namespaces.get(key))

    async def reconcile(self, key: Key) -> After | None:
        """Disable what is left in one namespace.

        Raises the first ApiError of an object when all others are disabled: one that an admission webhook refuses does
        not keep the rest in force.
        """
        found = self._namespaces.get(key)
        if found is None or not found.metadata.deleting or not (tenant := tenant_of(found)):
            return None
        refused: list[ApiError] = []
        for service in (await self._client.list(SERVICES, key.name, view=Service)).items:
            await self._patch(SERVICES, service, close_service(service), refused)
        for ingress in (await self._client.list(INGRESSES, key.name, view=Ingress)).items:
            await self._patch(INGRESSES, ingress, close_ingress(ingress), refused)
        for resource in (HTTPROUTES, GRPCROUTES):
            for route in await self._routes(resource, key.name, refused):
                await self._patch(resource, route, close_route(route), refused)
        if await self._is_dismissed(tenant):
            await self._end_pods(key.name)
        if refused:
            raise refused[0]
        return After(AGAIN)

    async def _routes(self, resource: Resource, namespace: str, refused: list[ApiError]) -> list[Route]:
        """Return the routes of a kind in a namespace; none where it is not served."""
        try:
            return (await self._client.list(resource, namespace, view=Route)).items
        except NotFound:
            return []
        except ApiError as error:
            # What its definition's owner broke keeps no pods running.
            refused.append(error)
            return []

    async def _is_dismissed(self, tenant: str) -> bool:
        """Return whether a tenant has no account any more; one that gives a namespace back has."""
        try:
            await self._client.get(SERVICEACCOUNTS, SERVICE_ACCOUNT, tenant_namespace(tenant), view=Object)
        except NotFound:
            return True
        return False

    async def _end_pods(self, namespace: str) -> None:
        """Shorten the grace period of pods that are being deleted; it can only be shortened (CheckGracefulDelete)."""
        for pod in (await self._client.list(PODS, namespace, view=Object)).items:
            meta = pod.metadata
            if meta.deleting and (meta.deletion_grace_period_seconds or 0) > LAST_GRACE:
                with suppress(Conflict):  # 409: the precondition on the UID failed, it is another pod
                    await self._client.delete(PODS, meta.name, namespace, uid=meta.uid, grace=LAST_GRACE)

    def _changed(self, key: Key, old: Object | None, new: Object | None) -> Iterable[Key]:
        begins = new is not None and new.metadata.deleting and (old is None or not old.metadata.deleting)
        return (key,) if begins else ()

    async def _patch(
        self, resource: Resource, found: Object, patch: dict[str, Any] | None, refused: list[ApiError]
    ) -> None:
        if patch is None:
            return
        meta = found.metadata
        try:
            await self._client.patch(resource, meta.name, patch, meta.namespace, view=None)
        except NotFound:
            return
        except ApiError as error:
            refused.append(error)
            return
        self._log.info("disabled the {kind} {name}: its namespace is being deleted", kind=resource.kind, name=meta.key)
