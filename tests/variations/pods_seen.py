"""The oracle for pods: what a pod is, runs as and can read, by the API server's own judgement where it has one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from liqod.kube.client import Client
from liqod.kube.errors import ApiError
from liqod.kube.requests import collection
from liqod.kube.resources import PODS
from tests.variations.seen import metadata
from tests.variations.variation import send

_OWN_VOLUMES: Final = frozenset(
    {"configMap", "secret", "emptyDir", "downwardAPI", "projected", "ephemeral", "persistentVolumeClaim", "image"}
)
"""Volumes whose content is of the pod's own namespace, of an image, or made for the pod."""
_TOKENS: Final = ("serviceAccountToken", "podCertificate", "clusterTrustBundle")
_HOUR: Final = 3600
FOR_OTHERS: Final = ("control", "dedicated")
"""The names of the nodes that tenants' pods are not for."""


def pod(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a pod as the API server shows it."""
    yield from metadata(body)
    spec = body["spec"]
    if spec.get("serviceAccountName") != "default":
        yield f"account {spec.get('serviceAccountName')}"
    if spec.get("automountServiceAccountToken") is not False:
        yield "the token of its account"
    if spec.get("priority", 0) > 0 or spec.get("preemptionPolicy") != "Never":
        yield f"priority {spec.get('priority')}, preemption {spec.get('preemptionPolicy')}"
    if spec.get("schedulerName") != "default-scheduler":
        yield f"scheduler {spec.get('schedulerName')}"
    for field in ("runtimeClassName", "workloadRef", "resourceClaims", "schedulingGroup", "rootOfNode"):
        if spec.get(field):
            yield f"{field} {spec[field]}"
    if spec.get("nodeName") in FOR_OTHERS:
        yield f"it is on the node {spec['nodeName']}"
    if spec.get("terminationGracePeriodSeconds", 30) > _HOUR:
        yield "it ends when it likes"
    yield from _volumes(spec.get("volumes") or ())
    yield from _containers(spec)


def _containers(spec: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for one in spec.get(kind) or ():
            if one.get("imagePullPolicy") != "Always":
                yield f"{one['name']} may run what somebody else pulled"
            # Debug containers have no resources of their own (Kubernetes: "Ephemeral Containers").
            limits = one.get("resources", {}).get("limits", {})
            if kind != "ephemeralContainers" and not {"cpu", "memory"} <= limits.keys():
                yield f"{one['name']} has no limits: {limits}"


def _volumes(volumes: Any) -> Iterator[str]:
    for volume in volumes:
        for kind in volume.keys() - {"name"} - _OWN_VOLUMES:
            yield f"a volume of the kind {kind}"
        if volume.get("image", {}).get("pullPolicy", "Always") != "Always":
            yield "an image volume that somebody else pulled"
        for source in volume.get("projected", {}).get("sources", ()):
            for token in _TOKENS:
                if token in source:
                    yield f"a volume with {token}"


async def insecure(admin: Client, body: Mapping[str, Any], judging: str) -> str:
    """Return what Pod Security says about a pod in a namespace that enforces a level, or nothing; none is created."""
    spec = {key: value for key, value in body["spec"].items() if key not in ("nodeName", "priority", "tolerations")}
    # A pod is created without debug containers; for Pod Security they are containers.
    debug = [{**one} for one in spec.pop("ephemeralContainers", None) or ()]
    for one in debug:
        one.pop("targetContainerName", None)
    spec["containers"] = [*spec["containers"], *debug]
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": body["metadata"]["name"]}, "spec": spec}
    try:
        await send(admin, "POST", f"{collection(PODS, judging)}?dryRun=All", "application/json", json.dumps(made))
    except ApiError as error:
        if "PodSecurity" in error.message:
            return error.message
        raise
    return ""
