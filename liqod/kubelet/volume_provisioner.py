"""Gives claims that follow their pods a volume, and takes it away again: the provisioner of our storage classes.

Where a claim's first pod goes, its data is made and stays. For a virtual node that takes no more than a volume that
says so (the claim itself is reflected to the lender then); for another node a real claim of this cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import frozen
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from liqod.config.schema import Storage as Settings
from liqod.flow.backoff import Backoff
from liqod.flow.tasks import Tasks
from liqod.flow.workqueue import Workers, WorkQueue
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, ApiError, Conflict, KubeError, NotFound
from liqod.kube.resources import NAMESPACES, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, STORAGECLASSES
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.messages import clean_message
from liqod.kubelet.ports import Recorder
from liqod.kubelet.reflection.forge import claim as forge
from liqod.kubelet.reflection.forge.claim import AtHome, AtLender, Claim, Unselect, Volume
from liqod.model.ids import ClusterID, Key
from liqod.model.names import FIELD_MANAGER, MANAGED_BY_LABEL, PROVISIONER, REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import Object, reference_to
from liqod.model.objects.storage_class import StorageClass

AGAIN: Final = Backoff(initial=5.0, factor=2.0, cap=300.0)
AWAY: Final = Backoff(initial=1.0, factor=2.0, cap=60.0)
"""When a lender that is out of reach is looked at again for a volume whose data is to be deleted."""


@frozen
class Lender:
    """What is known of a lender that may hold data: the namespaces there, and the way to it (None: out of reach)."""

    context: Context
    namespaces: Mapping[str, str]
    client: Client | None


class VolumeProvisioner(MultiService):
    """The provisioner; ``lender(id)`` tells of one, None while its virtual kubelet does not run (yet).

    ``is_peer(id)`` tells whether there is a record of such a lender, ``offered(id)`` its storage classes,
    ``offloaded(namespace)`` whether a namespace is.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        client: Client,
        informers: Informers,
        settings: Settings,
        nodes: Informer[Object],
        recorder: Recorder,
        *,
        lender: Callable[[ClusterID], Lender | None],
        is_peer: Callable[[ClusterID], bool],
        offered: Callable[[str], list[str]],
        offloaded: Callable[[str], bool],
        ready: Callable[[], bool],
    ) -> None:
        super().__init__()
        self._client = client
        self._settings = settings
        self._nodes = nodes
        self._recorder = recorder
        self._lender = lender
        self._is_peer = is_peer
        self._offered = offered
        self._offloaded = offloaded
        self._ready = ready
        self._claims: Informer[Claim] = informers.of(PERSISTENTVOLUMECLAIMS, Claim)
        labels = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
        self.volumes: Informer[Volume] = informers.of(PERSISTENTVOLUMES, Volume, labels=labels)
        self._classes: Informer[StorageClass] = informers.of(STORAGECLASSES, StorageClass)
        self._attempts: dict[Key, int] = {}
        self._queue: WorkQueue[Key] = WorkQueue(reactor, "claims")
        self._workers: Workers[Key] = Workers(self._queue, 4, self._process, "storage:")
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)
        self._unsubscribe: list[Callable[[], None]] = []

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = [
            self._claims.subscribe(self._claim_changed),
            self.volumes.subscribe(lambda key, old, new: self._queue.add(key)),
        ]
        self._tasks.spawn(self._begin(), "providing storage")

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []
        self._queue.close()
        return maybeDeferred(super().stopService)

    def follows(self, name: str) -> bool:
        """Tell whether claims of a storage class (empty: the default one) follow their pods."""
        if name and name == self._settings.virtual_class:
            return True
        classes = self._classes.items()
        wanted = [each for each in classes if (each.metadata.name == name if name else forge.is_default(each))]
        return any(each.provisioner == PROVISIONER for each in wanted)

    async def _begin(self) -> None:
        for informer in (self._claims, self.volumes, self._classes, self._nodes):
            await informer.when_synced()
        try:
            await self._ensure_class()
        except KubeError as error:
            self._log.warn("the storage class could not be made: {error}", error=str(error))
        self._workers.setServiceParent(self)

    async def _ensure_class(self) -> None:
        """Make the class for claims that follow their pods, unless there is one of that name, whoever made it."""
        name = self._settings.virtual_class
        if name and self._classes.get(Key("", name)) is None:
            with contextlib.suppress(AlreadyExists):
                await self._client.create(STORAGECLASSES, forge.forge_class(name), view=None)

    def _claim_changed(self, key: Key, old: Claim | None, new: Claim | None) -> None:
        shown = new or old
        behind = shown.metadata.annotations.get(forge.VIRTUAL_NAME, "") if shown is not None else ""
        if shown is not None and behind and key.namespace == self._settings.namespace:
            self._queue.add(Key(shown.metadata.annotations.get(forge.VIRTUAL_NAMESPACE, ""), behind))
        elif new is None or not new.spec.volume_name:
            self._queue.add(key)

    async def _process(self, key: Key) -> float | None:
        """Look at a claim, or (without a namespace) at a volume."""
        try:
            again = await (self._claim(key) if key.namespace else self._volume(key.name))
        except Conflict:
            return 0.5
        except ApiError as error:
            attempt = self._attempts.get(key, 0)
            self._attempts[key] = attempt + 1
            claim = self._claims.get(key) if key.namespace else None
            if claim is not None:
                self._record_event(
                    claim, "ProvisioningFailed", f"its volume is not made: {clean_message(error.message)}"
                )
            return AGAIN.delay(attempt)
        if again is None:
            self._attempts.pop(key, None)
        return again

    async def _claim(self, key: Key) -> float | None:
        claim = self._claims.get(key)
        if claim is None:
            await self._forget(key)
            return None
        classes = {each.metadata.name: each for each in self._classes.items()}
        lenders = {
            node.metadata.name: node.metadata.labels[REMOTE_CLUSTER_LABEL]
            for node in self._nodes.items()
            if REMOTE_CLUSTER_LABEL in node.metadata.labels
        }
        offered = {lender: self._offered(lender) for lender in lenders.values()}
        step = forge.plan(claim, classes, lenders, offered, offloaded=self._offloaded(key.namespace))
        found = classes.get(claim.spec.storage_class_name or "")
        match step:
            case AtLender(lender) if found is not None:
                await self._make(forge.forge_volume_there(claim, found, lender))
            case AtHome() if found is not None:
                await self._at_home(claim, found)
            case Unselect(reason, message):
                self._record_event(claim, reason, message)
                await self._unselect(claim)
        return None

    async def _forget(self, key: Key) -> None:
        """Delete the real claim of one that went before it had a volume."""
        behind = {forge.VIRTUAL_NAMESPACE: key.namespace, forge.VIRTUAL_NAME: key.name}
        for real in self._claims.items():
            meta = real.metadata
            is_its = meta.namespace == self._settings.namespace and behind.items() <= meta.annotations.items()
            if is_its and not meta.deleting and self.volumes.get(Key("", meta.name)) is None:
                await self._client.delete(PERSISTENTVOLUMECLAIMS, meta.name, meta.namespace, uid=meta.uid)

    async def _make(self, body: Mapping[str, Any]) -> None:
        try:
            await self._client.create(PERSISTENTVOLUMES, body, view=None)
        except AlreadyExists:
            # Made by an earlier turn: the cluster is about to bind it.
            return
        self._log.info("made the volume {name}", name=body["metadata"]["name"])

    async def _unselect(self, claim: Claim) -> None:
        meta = claim.metadata
        await self._client.patch(
            PERSISTENTVOLUMECLAIMS,
            meta.name,
            {"metadata": {"resourceVersion": meta.resource_version, "annotations": {forge.SELECTED_NODE: None}}},
            meta.namespace,
            view=None,
        )

    async def _at_home(self, claim: Claim, found: StorageClass) -> None:
        """Have a real claim stand behind, and when it is bound, make a volume like its own."""
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

    async def _volume(self, name: str) -> float | None:
        """Delete the data of a volume whose claim is gone, where its class said so, and then the volume."""
        volume = self.volumes.get(Key("", name))
        if volume is None or volume.metadata.deleting or not forge.is_to_go(volume):
            return None
        lender = forge.lender_of(volume)
        if not lender:
            await self._client.delete(PERSISTENTVOLUMECLAIMS, name, self._settings.namespace)
        elif not await self._deleted_there(volume, ClusterID(lender)):
            attempt = self._attempts.get(Key("", name), 0)
            self._attempts[Key("", name)] = attempt + 1
            return AWAY.delay(attempt)
        await self._client.delete(PERSISTENTVOLUMES, name, uid=volume.metadata.uid)
        return None

    async def _deleted_there(self, volume: Volume, peer: ClusterID) -> bool:
        """Delete the claim at the lender; False while it cannot be asked. What went with its namespace is gone."""
        if not self._ready():
            return False
        lender = self._lender(peer)
        if lender is None:
            return not self._is_peer(peer)
        reference = volume.spec.claim_ref
        remote = lender.namespaces.get(reference.namespace)
        if remote is None:
            return True
        if lender.client is None:
            return False
        try:
            there = await lender.client.get(PERSISTENTVOLUMECLAIMS, reference.name, remote, view=Object)
            if forge.is_of(there, volume, lender.context):
                await lender.client.delete(PERSISTENTVOLUMECLAIMS, reference.name, remote, uid=there.metadata.uid)
        except (NotFound, Conflict):
            pass
        except KubeError as error:
            self._log.info("the data of {name} stays for now: {error}", name=volume.metadata.name, error=str(error))
            return False
        return True

    def _record_event(self, claim: Claim, reason: str, message: str) -> None:
        self._recorder.emit(reference_to("v1", "PersistentVolumeClaim", claim.metadata), "Warning", reason, message)
