"""The objects that are made for a move, as bodies. Pure.

All are in the namespace of the claim, which both clusters have: pods are put into one of them by affinity, and the
service and the secret are reflected as any others, so that a pod elsewhere reads the repository by the service's name.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from attrs import frozen

from liqod.cli.workloads.move.seen import HOME, LABEL, REPOSITORY, SERVER_LABEL, JobName, MoveRecord
from liqod.model.digests import short_digest
from liqod.model.ids import Key
from liqod.model.names import REMOTE_CLUSTER_LABEL, SKIP_REFLECTION, TAINT_KEY, TYPE_LABEL, VIRTUAL_NODE_TYPE

PORT: Final = 8000
FIELD: Final = "move"
"""The entry of the ConfigMap with the record."""
BACKOFF: Final = 2
"""How often a pod of a job is tried again by the job itself."""
_BOUND: Final = ("pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/")
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SPEC: Final = ("accessModes", "resources", "storageClassName", "volumeMode")
_ORIGINAL: Final = "/data"
_COPY: Final = "/copy"
_SCRIPTS: Final[Mapping[JobName, str]] = {
    # A repository that is there is gone on with; a lock of a pod that was killed is nobody's.
    "backup": "restic cat config >/dev/null 2>&1 || restic init || exit 1; restic unlock; "
    f"exec restic backup --json --no-cache --host move --exclude {_ORIGINAL}/lost+found {_ORIGINAL}",
    "restore": "exec restic restore latest --json --no-cache --host move --target / --verify",
    # Compared as well, whatever an earlier attempt left there.
    "refill": f"cp -a {_COPY}/. {_ORIGINAL}/ && sync && cd {_COPY} && odd=$(find . -type f -exec sh -c "
    f'\'cmp -s "$1" "{_ORIGINAL}/$1" || echo "$1"\' sh {{}} \\;) && '
    '{ [ -z "$odd" ] || { echo "differs: $odd"; exit 1; }; }',
}


@frozen
class Images:
    """The images with restic, and with its server."""

    restic: str
    server: str


def move_id(claim: Key, uid: str, target: str) -> str:
    """Return the ID of a move: the same whatever program begins it."""
    return short_digest([claim.namespace, claim.name, uid, target])[:10]


def name_of(record: MoveRecord, job: str = "") -> str:
    """Return the name of what is made for a move."""
    return f"liqo-move-{record.id}{f'-{job}' if job else ''}"


def record_name(claim: str) -> str:
    """Return the name of the record of a claim's move: there is one at a time."""
    return f"liqo-move-of-{short_digest(claim)}"


def record_body(record: MoveRecord, namespace: str) -> dict[str, Any]:
    """Return the ConfigMap with a record, which stays in this cluster."""
    metadata = {
        "name": record_name(record.claim),
        "namespace": namespace,
        "labels": {LABEL: record.id},
        "annotations": {SKIP_REFLECTION: "true"},
    }
    return {"metadata": metadata, "data": {FIELD: msgspec.json.encode(record).decode()}}


def secret(record: MoveRecord, namespace: str, password: str) -> dict[str, Any]:
    """Return the secret of the repository: the password of its contents and of its server, and the latter's digest."""
    # rest-server takes the digests of htpasswd(1); that of SHA-1 needs no program, and the password is a random one.
    digest = base64.b64encode(hashlib.sha1(password.encode(), usedforsecurity=False).digest()).decode()
    metadata = _metadata(record, namespace)
    return {"metadata": metadata, "stringData": {"password": password, "htpasswd": f"move:{{SHA}}{digest}\n"}}


def service(record: MoveRecord, namespace: str) -> dict[str, Any]:
    """Return the service of the repository."""
    spec = {"selector": {SERVER_LABEL: record.id}, "ports": [{"port": PORT, "protocol": "TCP"}]}
    return {"metadata": _metadata(record, namespace), "spec": spec}


def server_pod(record: MoveRecord, namespace: str, images: Images) -> dict[str, Any]:
    """Return the pod that has the repository, and serves it, where the original is."""
    command = ["rest-server", "--path", "/repository", "--listen", f":{PORT}", "--htpasswd-file", "/secret/htpasswd"]
    container = {
        "name": "main",
        "image": images.server,
        "command": command,
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 2},
        "volumeMounts": [
            {"name": "repository", "mountPath": "/repository"},
            {"name": "secret", "mountPath": "/secret", "readOnly": True},
        ],
    }
    volumes = [
        {"name": "repository", "emptyDir": {}},
        {"name": "secret", "secret": {"secretName": name_of(record)}},
    ]
    metadata = _metadata(record, namespace)
    metadata["labels"] |= {"app": "repository", SERVER_LABEL: record.id}
    spec = _pod_spec(record.origin, container, volumes, "Always")
    return {"metadata": metadata, "spec": spec}


def job(record: MoveRecord, namespace: str, name: JobName, images: Images, repository: str) -> dict[str, Any]:
    """Return a job of a move: at the origin the backup, at the target the others."""
    claims = {
        "backup": ((record.claim, _ORIGINAL, True),),
        # The backup has the path of the original in it.
        "restore": ((name_of(record), _ORIGINAL, False),),
        "refill": ((name_of(record), _COPY, True), (record.claim, _ORIGINAL, False)),
    }[name]
    container = {
        "name": "main",
        "image": images.restic,
        "command": ["sh", "-c", _SCRIPTS[name]],
        "env": [] if name == "refill" else _env(record),
        # The files are of many users.
        "securityContext": {"runAsUser": 0},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": f"claim-{number}", "mountPath": path, "readOnly": read_only}
            for number, (_, path, read_only) in enumerate(claims)
        ],
    }
    volumes = [
        {"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": claim}}
        for number, (claim, _, _) in enumerate(claims)
    ]
    where = record.origin if name == "backup" else record.target
    template = {
        "metadata": {"labels": {LABEL: record.id, "app": name}},
        "spec": _pod_spec(where, container, volumes, "Never"),
    }
    metadata = _metadata(record, namespace, name)
    metadata["annotations"] = {REPOSITORY: repository}
    return {"metadata": metadata, "spec": {"backoffLimit": BACKOFF, "template": template}}


def copy_claim(record: MoveRecord, namespace: str) -> dict[str, Any]:
    """Return the claim for the copy, of which a first pod at the target makes the volume there."""
    made = new_claim(record, namespace)
    return {**made, "metadata": {**made["metadata"], "name": name_of(record)}}


def new_claim(record: MoveRecord, namespace: str) -> dict[str, Any]:
    """Return the claim that takes the place of the original."""
    metadata = record.body["metadata"]
    labels = {**metadata.get("labels", {}), LABEL: record.id}
    return {
        "metadata": {**metadata, "name": record.claim, "namespace": namespace, "labels": labels},
        "spec": record.body["spec"],
    }


def portable(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a claim is made from again: without its volume, and what this cluster noted of it."""
    meta = claim["metadata"]
    annotations = {
        key: value
        for key, value in (meta.get("annotations") or {}).items()
        if not key.startswith(_BOUND) and key != _APPLIED
    }
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != LABEL}
    spec = {field: claim["spec"][field] for field in _SPEC if field in claim["spec"]}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def progress(log: str) -> str:
    """Return how far a job is by the last line of restic that says so, such as ``42 %``; empty where none does."""
    for line in reversed(log.splitlines()):
        try:
            said = msgspec.json.decode(line)
        except msgspec.MsgspecError:
            continue
        done = said.get("percent_done") if isinstance(said, dict) else None
        if isinstance(done, (int, float)) and 0 <= done <= 1:
            return f"{int(done * 100)} %"
    return ""


def _env(record: MoveRecord) -> list[dict[str, Any]]:
    key = {"secretKeyRef": {"name": name_of(record), "key": "password"}}
    # The kubelet puts the value of an earlier variable in the place of $(NAME).
    address = f"rest:http://move:$(RESTIC_PASSWORD)@{name_of(record)}:{PORT}/"
    return [{"name": "RESTIC_PASSWORD", "valueFrom": key}, {"name": "RESTIC_REPOSITORY", "value": address}]


def _metadata(record: MoveRecord, namespace: str, what: str = "") -> dict[str, Any]:
    return {"name": name_of(record, what), "namespace": namespace, "labels": {LABEL: record.id}}


def _pod_spec(where: str, container: dict[str, Any], volumes: list[dict[str, Any]], restart: str) -> dict[str, Any]:
    rule = {"key": REMOTE_CLUSTER_LABEL, "operator": "In", "values": [where]}
    if where == HOME:
        rule = {"key": TYPE_LABEL, "operator": "NotIn", "values": [VIRTUAL_NODE_TYPE]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    return {
        "containers": [container],
        "volumes": volumes,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "tolerations": [] if where == HOME else [{"key": TAINT_KEY, "operator": "Exists"}],
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }
