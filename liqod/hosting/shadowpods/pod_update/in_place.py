"""Applies changes of a ShadowPod to its running pod: metadata and images, containers for debugging, and its size."""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgspec

from liqod.flow.controller import After
from liqod.hosting.shadowpods import forge
from liqod.hosting.shadowpods.admission import Refuse, admit, read_spec
from liqod.hosting.shadowpods.decide import Tracked
from liqod.hosting.shadowpods.isolation import PodIsolation
from liqod.hosting.shadowpods.pod_contract import restrict
from liqod.hosting.shadowpods.pod_update import patches, sizes
from liqod.hosting.shadowpods.quota import resource_requests
from liqod.hosting.shadowpods.quota.capacity import TenantCapacity
from liqod.hosting.shadowpods.quota.ledger import WaitingShadowPod
from liqod.hosting.shadowpods.status import ShadowPodReports
from liqod.hosting.tenants.bounds import default_requests, with_limits
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.namespaces import Namespaces
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.views import FORGED_ANNOTATION, Pod, PodSpec
from liqod.kube.client import Client
from liqod.kube.errors import Forbidden, Invalid, NotFound
from liqod.kube.resources import PODS
from liqod.model.ids import Key
from liqod.model.names import ISOLATED_LABEL
from liqod.model.objects import quantity
from liqod.model.objects.meta import Object, from_json
from liqod.model.objects.quantity import Resources
from liqod.model.records.views import ShadowPod

_LABEL_PATH: Final = f"/metadata/labels/{ISOLATED_LABEL.replace('/', '~1')}"
RETRY_RESIZE = 300.0
"""Seconds after which a refused resize is tried again, should no capacity have been freed before."""


def compared(shadow: ShadowPod, pod: Pod) -> int:
    """Return a hash of all that decides whether a pod follows its ShadowPod.

    A pod has several events for each change of its ShadowPod; comparing each time costs as much as forging the pod.
    """
    meta = shadow.metadata
    wanted = (frozenset(meta.labels.items()), frozenset(meta.annotations.items()), bytes(shadow.spec.pod))
    return hash((meta.uid, wanted, pod.metadata.uid, pod.metadata.annotations.get(FORGED_ANNOTATION)))


@attrs.frozen
class _Outcome:
    """What became of a resize; one that is refused may be ``retried`` later, and then ``why`` says for what reason."""

    accepted: bool
    retried: bool = False
    why: str = ""


class InPlaceUpdate:
    """Updates pods; a refusal of the API server is recorded as an event, and the pod stays unchanged."""

    def __init__(
        self,
        client: Client,
        *,
        namespaces: Namespaces,
        capacity: TenantCapacity,
        reports: ShadowPodReports,
        contract: Contract,
        contracts: Contracts,
        isolation: PodIsolation,
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._capacity = capacity
        self._reports = reports
        self._contract = contract
        self._contracts = contracts
        self._isolation = isolation

    async def apply(self, shadow: ShadowPod, pod: Pod, tracked: Tracked) -> After | None:
        """Bring a pod to its ShadowPod; returns when to try a refused resize again. Raises KubeError."""
        state = compared(shadow, pod)
        if state == tracked.followed and tracked.refused_size is None:
            return None
        uid = pod.metadata.uid
        try:
            shadow = restrict(shadow, self._contract)
            if tracked.refused_size is not None and not sizes.resize(shadow, pod):
                tracked.refused_size = None
                self._capacity.stop_waiting(shadow.metadata.key)
            patch = patches.changes(shadow, pod)
            if not patch:
                tracked.followed = state
                return None
            if tracked.applied == (uid, digest := forge.digest_of(shadow)):
                return None
            resize, debug = sizes.resize(shadow, pod), patches.debugging(shadow, pod)
        except ValueError as error:
            self._refused(pod, str(error))
            return None
        resized = not resize or await self._resize(shadow, pod, tracked)
        if not resized:
            patch = patches.changes(shadow, pod, resized=False)
        # The annotation with what the pod was forged from is written last: after a crash in between everything is
        # compared again.
        if debug and not await self._change(pod, debug, "ephemeralcontainers"):
            return None
        if patch:
            patch += self._isolated(shadow, pod)
        if patch and not await self._change(pod, patch):
            # A JSON patch is atomic (RFC 5789, section 2): without the spec part the metadata may still be accepted.
            metadata_only = patches.changes(shadow, pod, spec=False, resized=resized) + self._isolated(shadow, pod)
            if metadata_only != patch:
                await self._change(pod, metadata_only)
        if not resized:
            return After(RETRY_RESIZE)
        tracked.applied = (uid, digest)
        return None

    def _isolated(self, shadow: ShadowPod, pod: Pod) -> list[dict[str, Any]]:
        """Return the patch by which a pod is not less isolated in between, when other labels are its own.

        Policies select it by these at once; the label that says so follows.
        """
        before = pod.metadata.labels.get(ISOLATED_LABEL, "")
        wanted = self._isolation.of_running(shadow, before)
        return [] if wanted == before else [{"op": "add", "path": _LABEL_PATH, "value": wanted}]

    async def _resize(self, shadow: ShadowPod, pod: Pod, tracked: Tracked) -> bool:
        """Resize a pod; returns whether nothing is left to be tried.

        A size for which there is no capacity is recorded once, and tried again when capacity is freed.
        """
        key = shadow.metadata.key
        tenant = await self._namespaces.tenant_of(key.namespace)
        offered = self._capacity.offered(tenant)
        # From here to the charge nothing is awaited: no two workers can admit pods for the same capacity.
        defaults = default_requests(self._contracts.of(tenant), offered)
        verdict = admit(shadow, tenant, offered, self._capacity.used_without(tenant, key), defaults=defaults)
        if isinstance(verdict, Refuse):
            more = quantity.subtract(resource_requests.of_pod(read_spec(shadow), defaults), self._capacity.charged(key))
            wanted = {name: amount for name, amount in more.items() if amount > 0}
            created = shadow.metadata.creation_timestamp or ""
            self._capacity.wait(tenant, WaitingShadowPod(created, key, wanted, offered))
            why = verdict.message
        else:
            if not (patch := sizes.resize(shadow, pod, self._limited(shadow, tenant, offered))):
                return self._settled(key, tracked)  # it has all that it may have
            # What the pod gives back is not free before the API server, and then its node, has shown that.
            most = resource_requests.largest((self._capacity.charged(key), verdict.asked))
            self._capacity.charge(key, tenant, most)
            try:
                outcome = await self._patch_size(pod, patch)
            except BaseException:  # a cancelled request as well: the pod has the size that it had, as far as is known
                self._capacity.recount(key)
                raise
            if not outcome.accepted:
                self._capacity.recount(key)
            if not outcome.retried:
                return self._settled(key, tracked)
            why = outcome.why
        refused = pod.metadata.uid, forge.size_of(shadow)
        if tracked.refused_size != refused:
            tracked.refused_size = refused
            self._reports.record_update_refused(pod, f"the pod is not resized: {why}")
        return False

    def _settled(self, key: Key, tracked: Tracked) -> bool:
        """Forget that a size was refused; returns that nothing is left to be tried."""
        self._capacity.stop_waiting(key)
        tracked.refused_size = None
        return True

    def _limited(self, shadow: ShadowPod, tenant: str, offered: Resources | None) -> PodSpec | None:
        """Return the spec with the limits that a new pod would have; None where it may have those that it names."""
        terms = self._contracts.of(tenant)
        if terms.granted.quota != "hard":
            return None
        spec = from_json(shadow.spec.pod)
        return msgspec.convert(with_limits(spec, offered, default_requests(terms, offered)), PodSpec)

    async def _patch_size(self, pod: Pod, patch: list[dict[str, Any]]) -> _Outcome:
        """Patch the size of a pod; a refusal for good is recorded here."""
        try:
            # In-place resize is a subresource of its own (Kubernetes 1.33, KEP-1287): a patch of the pod itself that
            # changes requests or limits is Invalid.
            await self._patch(pod, patch, "resize")
        except Forbidden as error:
            # ResourceQuota, LimitRange and other admission plugins answer 403: what they count changes.
            return _Outcome(accepted=False, retried=True, why=error.message)
        except NotFound as error:
            if await self._exists(pod):  # the 404 was for the subresource: no in-place resize
                self._refused(pod, error.message)
            return _Outcome(accepted=False)
        except Invalid as error:
            self._refused(pod, error.message)
            return _Outcome(accepted=False)
        return _Outcome(accepted=True)

    async def _change(self, pod: Pod, patch: list[dict[str, Any]], subresource: str = "") -> bool:
        """Patch a pod; returns whether it still exists (and, for the pod itself, whether the patch was accepted)."""
        try:
            await self._patch(pod, patch, subresource)
        except NotFound as error:
            if not subresource or not await self._exists(pod):
                return False
            self._refused(pod, error.message)
        except (Invalid, Forbidden) as error:
            self._refused(pod, error.message)
            return bool(subresource)
        return True

    async def _patch(self, pod: Pod, patch: list[dict[str, Any]], subresource: str) -> None:
        key = pod.metadata.key
        await self._client.patch(PODS, key.name, patch, key.namespace, subresource=subresource, kind="json", view=None)

    async def _exists(self, pod: Pod) -> bool:
        """Read whether a pod exists: 404 is also the answer about a subresource that the API server does not know."""
        key = pod.metadata.key
        try:
            await self._client.get(PODS, key.name, key.namespace, view=Object)
        except NotFound:
            return False
        return True

    def _refused(self, pod: Pod, why: str) -> None:
        self._reports.record_update_refused(pod, f"the pod goes on as it was: {why}")
