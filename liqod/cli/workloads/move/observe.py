"""Reads what there is of a move from the own cluster: what is elsewhere shows in pods, jobs and claims here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, get_args

import msgspec
from attrs import evolve, frozen

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Session
from liqod.cli.workloads.move.objects import FIELD, name_of, progress, record_name
from liqod.cli.workloads.move.seen import (
    HOME,
    LABEL,
    REPOSITORY,
    ClaimSeen,
    JobName,
    JobSeen,
    MoveRecord,
    Observed,
    ServerSeen,
)
from liqod.kube.errors import KubeError, NotFound
from liqod.kube.resources import (
    CONFIGMAPS,
    JOBS,
    NAMESPACES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    SECRETS,
    SERVICES,
    STORAGECLASSES,
    Resource,
)
from liqod.kubelet.reflection.forge.claim import REMOTE_CLASS
from liqod.model.diagnosis.cluster import ClusterRecords
from liqod.model.ids import Key
from liqod.model.names import ENABLED_LABEL, PROVISIONER, REMOTE_CLUSTER_LABEL
from liqod.model.objects.pod_completion import FINISHED
from liqod.model.objects.storage_class import StorageClass, default_class
from liqod.model.text import clean_text

MESSAGE: Final = 300
"""Characters of what a pod said, which may be one of another cluster."""
_JOBS: Final[tuple[JobName, ...]] = get_args(JobName)
_Json = Mapping[str, Any]


@frozen
class Look:
    """What there is of a move, and the claim as the API server has it."""

    seen: Observed
    claim: dict[str, Any] | None


async def observe(session: Session, key: Key, facts: ClusterRecords, target: str) -> Look:
    """Return what there is of the move of a claim; ``target`` is that which was asked for. Raises CliError."""
    claim = await _get(session, PERSISTENTVOLUMECLAIMS, key)
    seen = Observed(claim=_claim_seen(claim))
    config = await _get(session, CONFIGMAPS, Key(key.namespace, record_name(key.name)))
    pods: Sequence[_Json] = (await session.client.list(PODS, key.namespace)).items
    if config is None:
        seen = evolve(seen, users=_users(pods, key.name, ""))
        return Look(seen if claim is None else await _before(session, claim, facts, target, seen), claim)
    record = _decoded(config)
    name = Key(key.namespace, name_of(record))
    mine = [pod for pod in pods if _label(pod, LABEL) == record.id]
    jobs: dict[JobName, JobSeen] = {}
    for job in (await session.client.list(JOBS, key.namespace, labels=f"{LABEL}={record.id}")).items:
        found = next((one for one in _JOBS if job["metadata"]["name"] == name_of(record, one)), None)
        if found is not None and "deletionTimestamp" not in job["metadata"]:
            jobs[found] = await _job_seen(session, job, [pod for pod in mine if _label(pod, "app") == found])
    server = next((pod for pod in mine if pod["metadata"]["name"] == name.name), None)
    seen = evolve(
        seen,
        record=record,
        version=str(config["metadata"].get("resourceVersion", "")),
        users=_users(pods, key.name, record.id),
        secret=await _get(session, SECRETS, name) is not None,
        service=await _get(session, SERVICES, name) is not None,
        server=None if server is None else _server_seen(server),
        copy=_claim_seen(await _get(session, PERSISTENTVOLUMECLAIMS, name)),
        jobs=jobs,
    )
    return Look(seen, claim)


async def _before(session: Session, claim: _Json, facts: ClusterRecords, target: str, seen: Observed) -> Observed:
    """Return what decides whether a move may begin at all."""
    classes = (await session.client.list(STORAGECLASSES, view=StorageClass)).items
    used = next((one for one in classes if one.metadata.name == claim["spec"].get("storageClassName")), None)
    volume = await _get(session, PERSISTENTVOLUMES, Key("", claim["spec"].get("volumeName", "")))
    origin = HOME if volume is None else _label(volume, REMOTE_CLUSTER_LABEL) or HOME
    namespace = await _get(session, NAMESPACES, Key("", claim["metadata"]["namespace"])) or {"metadata": {}}
    away = [one for one in (origin, target) if one not in (HOME, "")]
    annotations = claim["metadata"].get("annotations") or {}
    if target == HOME:
        ordinary = [one for one in classes if one.provisioner != PROVISIONER]
        offers = bool(session.settings.storage.real_class) or default_class(ordinary) is not None
    else:
        offer = facts.offer_of(target)
        offers = bool(annotations.get(REMOTE_CLASS)) or (offer is not None and bool(offer.spec.offer.storage_classes))
    return evolve(
        seen,
        follows=used is not None and used.provisioner == PROVISIONER,
        origin=origin,
        lacking=() if _label(namespace, ENABLED_LABEL) == "true" else tuple(dict.fromkeys(away)),
        offers_storage=offers,
    )


async def _get(session: Session, resource: Resource, key: Key) -> dict[str, Any] | None:
    if not key.name:
        return None
    try:
        return await session.client.get(resource, key.name, key.namespace)
    except NotFound:
        return None


def _decoded(config: _Json) -> MoveRecord:
    try:
        return msgspec.json.decode((config.get("data") or {}).get(FIELD, ""), type=MoveRecord)
    except msgspec.MsgspecError as error:
        raise CliError(
            errors.REFUSED,
            f"the record of the move cannot be read: {error}",
            f"it is the ConfigMap {config['metadata']['name']}; a newer liqodctl may have written it",
        ) from None


def _label(body: _Json, key: str) -> str:
    return str((body["metadata"].get("labels") or {}).get(key, ""))


def _claim_seen(claim: _Json | None) -> ClaimSeen | None:
    if claim is None:
        return None
    return ClaimSeen(
        uid=str(claim["metadata"].get("uid", "")),
        bound=bool(claim["spec"].get("volumeName")) and (claim.get("status") or {}).get("phase") == "Bound",
        deleting="deletionTimestamp" in claim["metadata"],
        block=claim["spec"].get("volumeMode") == "Block",
        move=_label(claim, LABEL),
    )


def _users(pods: Sequence[_Json], claim: str, move: str) -> tuple[str, ...]:
    """Return the names of the pods that have a claim, but those of the move itself."""
    return tuple(
        pod["metadata"]["name"]
        for pod in pods
        if not (move and _label(pod, LABEL) == move)
        and (pod.get("status") or {}).get("phase") not in FINISHED
        and any((one.get("persistentVolumeClaim") or {}).get("claimName") == claim for one in _volumes(pod))
    )


def _volumes(pod: _Json) -> Sequence[_Json]:
    return (pod.get("spec") or {}).get("volumes") or ()


def _server_seen(pod: _Json) -> ServerSeen:
    status = pod.get("status") or {}
    ready = status.get("phase") == "Running" and _condition(status, "Ready") == "True"
    gone = "deletionTimestamp" in pod["metadata"]
    return ServerSeen(str(pod["metadata"].get("uid", "")), ready and not gone, _waits(pod))


def _condition(status: _Json, kind: str) -> str:
    return next((str(one.get("status")) for one in status.get("conditions") or () if one.get("type") == kind), "")


def _waits(pod: _Json) -> str:
    """Return why a pod does not run; empty where nothing says so."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return f"a node for the pod {pod['metadata']['name']}: {_clean(one.get('message'))}"
    return ""


async def _job_seen(session: Session, job: _Json, pods: Sequence[_Json]) -> JobSeen:
    status = job.get("status") or {}
    repository = str((job["metadata"].get("annotations") or {}).get(REPOSITORY, ""))
    if _condition(status, "Complete") == "True":
        return JobSeen("succeeded", repository=repository)
    if _condition(status, "Failed") == "True":
        said = [text for pod in pods for text in _last_words(pod)]
        return JobSeen("failed", said[-1] if said else "", repository)
    running = next((pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"), None)
    if running is None:
        return JobSeen("running", next((text for pod in pods if (text := _waits(pod))), ""), repository)
    log = b""
    # What is not known of the progress is no failure: a lender may be out of reach for a while.
    with suppress(KubeError):
        meta = running["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log?tailLines=3&limitBytes=65536"
        log = await session.client.raw("GET", path)
    return JobSeen("running", progress(log.decode(errors="replace")), repository)


def _last_words(pod: _Json) -> list[str]:
    found = []
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (one.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode") and ended.get("message"):
            found.append(_clean(ended["message"]))
    return found


def _clean(text: object) -> str:
    # The end of what somebody said is what it ended with.
    return clean_text(str(text or "")[-MESSAGE:], MESSAGE)
