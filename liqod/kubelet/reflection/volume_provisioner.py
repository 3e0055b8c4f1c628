"""Provisions volumes for claims whose data follows their pods: the provisioner of our storage classes.

The data of a claim is created where its first pod is scheduled, and stays there. For a virtual node a placeholder
volume names the lender, to which the claim is reflected; for another node a second, real claim of this cluster is made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, Protocol

from attrs import define, evolve, frozen
from twisted.internet.interfaces import IReactorTime

from liqod.config.schema import StorageSettings
from liqod.flow.backoff import Backoff
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, watch
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, KubeError, NotFound
from liqod.kube.events import Recorder
from liqod.kube.resources import NAMESPACES, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, STORAGECLASSES
from liqod.kube.writing.refusals import READ_AGAIN, RefusedWrites, Retry, refused_write
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.exclusive_queue import ExclusiveQueue
from liqod.kubelet.common.messages import clean_message
from liqod.kubelet.namespaces.deletion_gate import DeletionGate
from liqod.kubelet.reflection.forge import claim as forge
from liqod.kubelet.reflection.forge.claim import AtHome, AtLender, Claim, Unselect, Volume
from liqod.model.ids import ClusterID, Key
from liqod.model.names import FIELD_MANAGER, MANAGED_BY_LABEL, PROVISIONER, REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import Object, reference_to
from liqod.model.objects.storage_class import StorageClass, default_class

UNREACHABLE_RETRY: Final = Backoff(initial=1.0, factor=2.0, cap=60.0)
"""Back-off of deletions of a volume's data at a lender that does not answer."""


@frozen
class LenderStorage:
    """A lender that may hold data: its namespaces by local name, and a client (None: it does not answer)."""

    context: Context
    namespaces: Mapping[str, str]
    client: Client | None
    gate: DeletionGate


class StorageLenders(Protocol):
    """The interface of lenders for the provisioner (implemented in ``kubelet.service``)."""

    @property
    def synced(self) -> bool:
        """Whether the caches of lenders' records have synced, so that a missing record does not exist."""
        ...

    def storage_of(self, peer: ClusterID) -> LenderStorage | None:
        """Return a lender; None while its virtual kubelet does not run."""
        ...

    def is_lender(self, peer: ClusterID) -> bool:
        """Return whether a VirtualNode record names this cluster, or a virtual node has left mappings at it."""
        ...

    def storage_classes(self, peer: str) -> list[str]:
        """Return the storage classes that a lender offers, the best first."""
        ...

    def is_offloaded(self, namespace: str) -> bool:
        """Return whether pods of a namespace are offloaded."""
        ...


@define
class _Reclaimed:
    """A volume whose data is to be deleted, or may be once its claim is gone.

    ``unclaimed``: its claim was seen to be deleted; ``gate``: the one that was asked; ``attempts``: how often the
    lender did not answer.
    """

    unclaimed: bool = False
    gate: DeletionGate | None = None
    attempts: int = 0


class VolumeProvisioner(Controller[Key]):
    """Reconciles claims, and volumes (keys without a namespace); ``nodes`` are the virtual nodes.

    Lenders take turns with each other and with this cluster's own claims, and each has one worker at most: one that
    answers slowly delays its own volumes alone.
    """

    name = "volumes"
    workers = 8

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        informers: Informers,
        *,
        settings: StorageSettings,
        nodes: Informer[Object],
        recorder: Recorder,
        lenders: StorageLenders,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._client = client
        self._settings = settings
        self._nodes = nodes
        self._recorder = recorder
        self._lenders = lenders
        self._claims: Informer[Claim] = informers.of(PERSISTENTVOLUMECLAIMS, Claim)
        labels = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
        self.volumes: Informer[Volume] = informers.of(PERSISTENTVOLUMES, Volume, labels=labels)
        self._classes: Informer[StorageClass] = informers.of(STORAGECLASSES, StorageClass)
        self._refusals: RefusedWrites[Key] = RefusedWrites()
        # Real claims by the claim that they are behind.
        self._behind: dict[Key, set[Key]] = {}
        self._reclaimed: dict[Key, _Reclaimed] = {}
        self._queue_at_lender: ExclusiveQueue[Key] = ExclusiveQueue()
        self._unsubscribe_deletions: Callable[[], None] = lambda: None

    def sources(self) -> Iterable[Source[Key]]:
        yield watch(self._claims, self._claim_changed)
        yield watch(self.volumes)
        yield watch(self._classes, lambda key, old, new: ())
        yield watch(self._nodes, lambda key, old, new: ())

    def startService(self) -> None:
        self._unsubscribe_deletions = self._claims.subscribe_deletions(self._claim_deleted)
        super().startService()

    async def cleanup(self) -> None:
        self._unsubscribe_deletions()
        # The next start finds every volume again.
        self._queue_at_lender.clear()

    def _claim_deleted(self, key: Key, claim: Claim) -> None:
        """Note that a claim with a volume of ours was seen to be deleted."""
        key = Key("", claim.spec.volume_name)
        if self.volumes.get(key) is not None:
            self._reclaimed.setdefault(key, _Reclaimed()).unclaimed = True

    async def prepare(self) -> None:
        """Create the class for claims that follow their pods, unless there is one of that name.

        Without the right to create it there may be other classes; any other failure is raised, to be tried again.
        """
        name = self._settings.virtual_class
        if not name or self._classes.get(Key("", name)) is not None:
            return
        try:
            with contextlib.suppress(AlreadyExists):
                await self._client.create(STORAGECLASSES, forge.forge_class(name), view=None)
        except (Forbidden, Invalid, NotFound) as error:
            self._log.warn("the storage class {name} could not be created: {error}", name=name, error=str(error))

    def follows(self, name: str) -> bool:
        """Return whether claims of a storage class (empty: the default one) follow their pods."""
        if name and name == self._settings.virtual_class:
            return True
        found = self._classes.get(Key("", name)) if name else default_class(self._classes.items())
        return found is not None and found.provisioner == PROVISIONER

    def _claim_changed(self, key: Key, old: Claim | None, new: Claim | None) -> Iterable[Key]:
        if key.namespace == self._settings.namespace:
            before, after = _before_it(old), _before_it(new)
            if before is not None and before != after:
                self._forget_behind(before, key)
            if after is not None:
                self._behind.setdefault(after, set()).add(key)
            if (virtual := after or before) is not None:
                return (virtual,)
        return (key,) if new is None or not new.spec.volume_name else ()

    def _forget_behind(self, virtual: Key, real: Key) -> None:
        behind = self._behind.get(virtual, set())
        behind.discard(real)
        if not behind:
            self._behind.pop(virtual, None)

    def fair_by(self, key: Key) -> Hashable:
        """Return the lender that has the data of a volume; empty for claims, and for data of this cluster."""
        volume = None if key.namespace else self.volumes.get(key)
        return forge.lender_of(volume) if volume is not None else ""

    async def reconcile(self, key: Key) -> After | None:
        try:
            again = await (self._claim(key) if key.namespace else self._volume(key))
        except Conflict:
            return After(READ_AGAIN)
        except ApiError as error:
            return self._failed(key, error)
        if again is None and not self._queue_at_lender.waits(key):
            self._refusals.forget(key)
            if (reclaimed := self._reclaimed.get(key)) is not None:
                reclaimed.attempts = 0
        return again

    def _failed(self, key: Key, error: ApiError) -> After | None:
        claim = self._claims.get(key) if key.namespace else None
        if claim is not None:
            message = f"its volume is not created: {clean_message(error.message)}"
            self._report(claim, "ProvisioningFailed", message)
        # Quotas and admission policies can change without an event of the claim: a refusal is always retried.
        refusal = evolve(refused_write(error, creating=True), retry=Retry.LATER)
        return After(self._refusals.refused(key, refusal) or 0.0)

    async def _claim(self, key: Key) -> After | None:
        claim = self._claims.get(key)
        await self._delete_real_claims(key, claim)
        if claim is None:
            return None
        classes = {each.metadata.name: each for each in self._classes.items()}
        lenders = {
            node.metadata.name: node.metadata.labels[REMOTE_CLUSTER_LABEL]
            for node in self._nodes.items()
            if REMOTE_CLUSTER_LABEL in node.metadata.labels
        }
        offered = {lender: self._lenders.storage_classes(lender) for lender in lenders.values()}
        step = forge.plan(claim, classes, lenders, offered, offloaded=self._lenders.is_offloaded(key.namespace))
        found = classes.get(claim.spec.storage_class_name or "")
        match step:
            case AtLender(lender) if found is not None:
                await self._make(forge.forge_volume_there(claim, found, lender))
            case AtHome() if found is not None:
                await self._at_home(claim, found)
            case Unselect(reason, message):
                self._report(claim, reason, message)
                await self._unselect(claim)
        return None

    async def _delete_real_claims(self, key: Key, claim: Claim | None) -> None:
        """Delete real claims behind claims of this name that were deleted before they got a volume.

        ``claim`` is the one that has the name now.
        """
        kept = "" if claim is None else forge.volume_name(claim)
        for real in sorted(self._behind.get(key, ())):
            found = self._claims.get(real)
            if found is None or found.metadata.deleting or real.name == kept:
                continue
            if self.volumes.get(Key("", real.name)) is None:
                await self._client.delete(PERSISTENTVOLUMECLAIMS, real.name, real.namespace, uid=found.metadata.uid)

    async def _make(self, body: Mapping[str, Any]) -> None:
        try:
            await self._client.create(PERSISTENTVOLUMES, body, view=None)
        except AlreadyExists:
            # An earlier step created it; kube-controller-manager (persistentvolume-binder) binds it by its claimRef.
            return
        self._log.info("created the volume {name}", name=body["metadata"]["name"])

    async def _unselect(self, claim: Claim) -> None:
        meta = claim.metadata
        await self._client.patch(
            PERSISTENTVOLUMECLAIMS,
            meta.name,
            # Without this annotation the scheduler chooses a node again (Kubernetes, "Storage Classes",
            # WaitForFirstConsumer).
            {"metadata": {"resourceVersion": meta.resource_version, "annotations": {forge.SELECTED_NODE: None}}},
            meta.namespace,
            view=None,
        )

    async def _at_home(self, claim: Claim, found: StorageClass) -> None:
        """Create a real claim; when it is bound, create a volume with the source of its volume."""
        key = Key(self._settings.namespace, forge.volume_name(claim))
        real = self._claims.get(key)
        if real is None:
            body = forge.forge_real_claim(claim, self._settings.real_class)
            try:
                await self._client.create(PERSISTENTVOLUMECLAIMS, body, key.namespace, view=None)
            except NotFound:
                await self._client.create(NAMESPACES, {"metadata": {"name": key.namespace}}, view=None)
                await self._client.create(PERSISTENTVOLUMECLAIMS, body, key.namespace, view=None)
            except AlreadyExists:
                return
        elif real.status.phase == "Bound" and real.spec.volume_name:
            volume: dict[str, Any] = await self._client.get(PERSISTENTVOLUMES, real.spec.volume_name)
            await self._make(forge.forge_volume_here(claim, found, volume.get("spec") or {}))
        elif not real.spec.volume_name and not real.metadata.deleting:
            await self._follow_node(claim, real)

    async def _follow_node(self, claim: Claim, real: Claim) -> None:
        """Have the scheduler choose again where the real claim's provisioner wants it, and keep both on one node.

        A provisioner without room on the selected node takes the node off its claim (external-provisioner,
        "rescheduling"), which is not the one that the scheduler looks at.
        """
        selected, wanted = (one.metadata.annotations.get(forge.SELECTED_NODE, "") for one in (real, claim))
        if selected == wanted:
            return
        # A claim's node is not changed: another real claim is made, for the node that is chosen next.
        await self._client.delete(
            PERSISTENTVOLUMECLAIMS, real.metadata.name, real.metadata.namespace, uid=real.metadata.uid
        )
        if not selected:
            self._report(
                claim, "NodeWithoutStorage", f"no volume can be made on {wanted}: another node is to be chosen"
            )
            await self._unselect(claim)

    async def _volume(self, key: Key) -> After | None:
        """Delete the data and then the volume of a deleted claim, if the reclaim policy is Delete.

        One volume at a time for each lender: the others wait in a line, and each that ends enqueues the next.
        """
        volume = self.volumes.get(key)
        lender = forge.lender_of(volume) if volume is not None and _is_deletable(volume) else ""
        if self._queue_at_lender.place_of(key) != lender:
            self._leave_line(key)
        if lender and not self._queue_at_lender.acquire(lender, key):
            return None
        try:
            return await self._reclaim(key, volume)
        finally:
            self._leave_line(key)

    def _leave_line(self, key: Key) -> None:
        if (following := self._queue_at_lender.release(key)) is not None:
            self.enqueue(following)

    async def _reclaim(self, key: Key, volume: Volume | None) -> After | None:
        name, reclaimed = key.name, self._reclaimed.get(key) or _Reclaimed()
        if volume is None or not _is_deletable(volume):
            if (asked := reclaimed.gate) is not None:
                asked.forget(PERSISTENTVOLUMES.plural, key, gone=volume is None)
            reclaimed.gate = None
            if volume is None:
                self._reclaimed.pop(key, None)
            return None
        self._reclaimed[key] = reclaimed
        lender = forge.lender_of(volume)
        if not lender:
            await self._client.delete(PERSISTENTVOLUMECLAIMS, name, self._settings.namespace)
        elif not await self._deleted_there(volume, ClusterID(lender), reclaimed):
            reclaimed.attempts += 1
            return After(UNREACHABLE_RETRY.delay(reclaimed.attempts - 1))
        # After the data: the volume is the only record of it. The controller manager deletes only volumes of its own
        # plugins, and leaves the others to their provisioner.
        await self._client.delete(PERSISTENTVOLUMES, name, uid=volume.metadata.uid)
        return None

    async def _deleted_there(self, volume: Volume, peer: ClusterID, reclaimed: _Reclaimed) -> bool:
        """Delete the claim at the lender; return False while the lender does not answer.

        Without the remote namespace the claim is gone, too: deleting a namespace deletes its objects.
        """
        if not self._lenders.synced:
            return False
        lender = self._lenders.storage_of(peer)
        if lender is None:
            return not self._lenders.is_lender(peer)
        reference = volume.spec.claim_ref
        remote = lender.namespaces.get(reference.namespace)
        if remote is None:
            return True
        if lender.client is None or not self._ask_gate(lender, volume, reclaimed):
            return False
        try:
            there = await lender.client.get(PERSISTENTVOLUMECLAIMS, reference.name, remote, view=Object)
            if forge.is_of(there, volume, lender.context):
                await lender.client.delete(PERSISTENTVOLUMECLAIMS, reference.name, remote, uid=there.metadata.uid)
        except (NotFound, Conflict):
            pass
        except KubeError as error:
            if not reclaimed.attempts:
                self._log.warn(
                    "the data of {name} is not deleted yet: {error}", name=volume.metadata.name, error=str(error)
                )
            return False
        return True

    def _ask_gate(self, lender: LenderStorage, volume: Volume, reclaimed: _Reclaimed) -> bool:
        """Ask the lender's gate, and no other one any more; return whether the data of a volume may be deleted.

        It may not while its claim is merely missing at home.
        """
        kind, key, gate = PERSISTENTVOLUMES.plural, volume.metadata.key, lender.gate
        if reclaimed.unclaimed:
            gate.observe_deletion(kind, key)
        peer = str(lender.context.lender)
        gate.register(kind, lambda: sum(forge.lender_of(each) == peer for each in self.volumes.items()), self.enqueue)
        asked, reclaimed.gate = reclaimed.gate, gate
        if asked is not None and asked is not gate:
            # It is of another virtual node of the lender, which answered before.
            asked.forget(kind, key)
        return gate.may_delete(kind, key)

    def _report(self, claim: Claim, reason: str, message: str) -> None:
        self._recorder.record_event(
            reference_to("v1", "PersistentVolumeClaim", claim.metadata), "Warning", reason, message
        )


def _before_it(real: Claim | None) -> Key | None:
    """Return the claim that a real claim is behind; None for one that is behind none."""
    notes = {} if real is None else real.metadata.annotations
    name = notes.get(forge.VIRTUAL_NAME, "")
    return Key(notes.get(forge.VIRTUAL_NAMESPACE, ""), name) if name else None


def _is_deletable(volume: Volume) -> bool:
    return forge.is_to_go(volume) and not volume.metadata.deleting
