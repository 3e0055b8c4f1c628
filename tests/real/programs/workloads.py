"""Objects of the tests with real programs: containers of their image, and what runs them."""

from __future__ import annotations

import copy
import os
from typing import Any, Final

from tests.real.path import NAMESPACE
from tests.real.programs.images import DATABASE_USER, IMAGE
from tests.testbed.cluster import Cluster

VIRTUAL: Final = {"liqo.io/type": "virtual-node"}
CLIENT: Final = "home-client"
CLASS: Final = "disks"
STARTED: Final = {"periodSeconds": 2, "failureThreshold": 30, "timeoutSeconds": 5}
REQUESTS: Final = {"cpu": "5m", "memory": "16Mi"}


def container(script: str, *, port: int = 0, image: str = IMAGE, **more: Any) -> dict[str, Any]:
    """Return a container that runs a script of shell; with a port it is ready when that is open."""
    body: dict[str, Any] = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "resources": {"requests": dict(REQUESTS)},
    }
    if port:
        body["ports"] = [{"containerPort": port}]
        body["readinessProbe"] = {"tcpSocket": {"port": port}, **STARTED}
    return {**body, **more}


def client(*words: str, **more: Any) -> dict[str, Any]:
    """Return a container that runs a command of the client program."""
    return {**container("", **more), "command": [CLIENT, *words]}


def pod_spec(main: dict[str, Any], selector: dict[str, str], **spec: Any) -> dict[str, Any]:
    """Return the specification of pods with one container, on nodes that have some labels."""
    return {"containers": [main], "nodeSelector": selector, "terminationGracePeriodSeconds": 5, **spec}


def bare_pod(name: str, spec: dict[str, Any], **labels: str) -> dict[str, Any]:
    """Return a pod; it has the label ``app`` with its name beside others."""
    meta = {"name": name, "namespace": NAMESPACE, "labels": {"app": name, **labels}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def workload(kind: str, name: str, spec: dict[str, Any], *, replicas: int = 1, **more: Any) -> dict[str, Any]:
    """Return a Deployment or a StatefulSet; ``more`` is of its own specification."""
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    own = {"serviceName": name} if kind == "StatefulSet" else {}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
            **own,
            **more,
        },
    }


def claim(name: str) -> dict[str, Any]:
    """Return a claim whose data follows its pod, as a template."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "liqo",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"metadata": {"name": name}, "spec": spec}


def of_database(**spec: Any) -> dict[str, Any]:
    """Return what of a pod's specification says that it does not run as root."""
    user = {"runAsUser": DATABASE_USER, "runAsGroup": DATABASE_USER, "fsGroup": DATABASE_USER, "runAsNonRoot": True}
    return {"securityContext": user, **spec}


def restricted(body: dict[str, Any]) -> dict[str, Any]:
    """Return a pod, or what has a template of pods, as Pod Security asks for at the level restricted."""
    made = copy.deepcopy(body)
    spec = made["spec"]["template"]["spec"] if "template" in made["spec"] else made["spec"]
    ordinary = of_database()["securityContext"]
    spec["securityContext"] = {
        **ordinary,
        "seccompProfile": {"type": "RuntimeDefault"},
        **spec.get("securityContext", {}),
    }
    for one in spec["containers"]:
        one["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return made


def make_disks(cluster: Cluster, count: int) -> None:
    """Give a cluster a storage class with some volumes: directories of its host that databases may write to."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    volumes = []
    for number in range(count):
        directory = cluster.directory / f"{CLASS}-{number}"
        directory.mkdir(exist_ok=True)
        os.chown(directory, DATABASE_USER, DATABASE_USER)
        volumes.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"{CLASS}-{number}"},
                "spec": {
                    "storageClassName": CLASS,
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": str(directory), "type": "Directory"},
                },
            }
        )
    cluster.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": CLASS, "annotations": default},
            "provisioner": "kubernetes.io/no-provisioner",
        },
        *volumes,
    )


def job(name: str, script: str, **more: Any) -> dict[str, Any]:
    """Return a Job for virtual nodes; ``more`` is of its specification."""
    spec = pod_spec(container(script), VIRTUAL, restartPolicy="Never")
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template, **more}}


def every_minute(name: str, script: str, **more: Any) -> dict[str, Any]:
    """Return a CronJob that makes such a Job each minute, one after the other; ``more`` is of its specification."""
    template = {"spec": job(name, script)["spec"]}
    spec = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": template, **more}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": spec}
