"""Which pods are wanted: the choices of one installation, the chart's objects for them, and what their accounts need.

Choices that a command does not name are those of the installation that is there. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from liqod.cli.setup.surroundings.other_form import MANAGER
from liqod.cli.setup.up.chart.render import Body, Release, is_hook, render
from liqod.config.load import parse
from liqod.config.schema import Settings
from liqod.kube.manifests import MANAGED_BY
from liqod.kube.resources import (
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    DISRUPTIONBUDGETS,
    SERVICES,
    STATEFULSETS,
    Resource,
)

INSTANCE: Final = "app.kubernetes.io/instance"
LABELS: Final = f"{INSTANCE}=liqod,{MANAGED_BY}={MANAGER}"
"""Selects the objects of this program, and their pods."""
GATEWAY: Final = "liqod-gateway"
CONFIGURATION: Final = "liqod-configuration"
HOSTNAME: Final = "kubernetes.io/hostname"
KINDS: Final[Mapping[str, Resource]] = {
    one.kind: one for one in (CONFIGMAPS, SERVICES, DEPLOYMENTS, DAEMONSETS, STATEFULSETS, DISRUPTIONBUDGETS)
}
"""Kinds of the objects, in the order in which they are made."""
WORKLOADS: Final = (DEPLOYMENTS, DAEMONSETS, STATEFULSETS)
_RELEASE: Final = re.compile(r"\d+\.\d+\.\d+")
_COMPONENT: Final = "app.kubernetes.io/component"
_NAME: Final = "LIQOD_CLUSTER__NAME"


@attrs.frozen
class Choices:
    """What distinguishes one installation from another one.

    ``image`` is a name with a tag; ``gateway`` the labels of the node that holds the tunnels, empty for no tunnels;
    ``userspace``: by wireguard-go, as the kernel there has no WireGuard.
    """

    image: str
    name: str
    configuration: str = ""
    replicas: int = attrs.field(default=1, kw_only=True)
    gateway: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)
    userspace: bool = attrs.field(default=False, kw_only=True)
    local_image: bool = attrs.field(default=False, kw_only=True)

    def values(self) -> Body:
        """Return the chart's values."""
        repository, tag = split_image(self.image)
        network: Body = {"enabled": bool(self.gateway), "userspace": self.userspace}
        if self.gateway:
            # The chart's own label is none of these.
            network["gateway"] = {"nodeSelector": {"liqod.io/gateway": None, **self.gateway}}
        policy = "Never" if self.local_image else "IfNotPresent"
        return {
            "image": {"repository": repository, "tag": tag, "pullPolicy": policy},
            "clusterName": self.name,
            "configuration": self.configuration,
            "replicas": self.replicas,
            "network": network,
            "setup": {"enabled": False},
        }


@attrs.frozen
class Present:
    """The installation that is there, by its objects; each is None where it is not."""

    daemon: Mapping[str, Any] | None = None
    gateway: Mapping[str, Any] | None = None
    configuration: Mapping[str, Any] | None = None
    tunnel: Mapping[str, Any] | None = None

    @property
    def image(self) -> str:
        """The image of the daemon."""
        return str(_container(self.daemon).get("image", ""))

    @property
    def is_local(self) -> bool:
        """Whether no registry is asked for the image."""
        return bool(_container(self.daemon).get("imagePullPolicy") == "Never")

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return environment(self.daemon).get(_NAME, "")

    @property
    def selector(self) -> dict[str, str]:
        """The labels of the gateway's node."""
        spec = _pod_spec(self.gateway)
        return dict(spec.get("nodeSelector") or {})

    @property
    def text(self) -> str:
        """The configuration."""
        data = (self.configuration or {}).get("data") or {}
        return str(data.get("liqod.toml", ""))


def choose(
    present: Present,
    *,
    image: str = "",
    name: str = "",
    gateway: Mapping[str, str] | None = None,
    configuration: str | None = None,
    nodes: int,
    usual: Choices,
) -> Choices:
    """Return the choices: those given, else those of what is there, else the ``usual`` ones.

    ``nodes`` are those that the daemon may run on: standbys want nodes of their own.
    """
    return Choices(
        image or _of_this_release(present.image) or usual.image,
        name or present.name or usual.name,
        present.text if configuration is None else configuration,
        replicas=2 if nodes > 1 else 1,
        gateway=present.selector if gateway is None else gateway,
        userspace=usual.userspace or present.tunnel is not None,
        local_image=usual.local_image or (not image and present.is_local),
    )


def _of_this_release(image: str) -> str:
    """Return an image without its tag where that is a release: another program brings another one."""
    repository, tag = split_image(image)
    return repository if _RELEASE.fullmatch(tag) else image


def objects(choices: Choices, namespace: str) -> list[Body]:
    """Return the objects in the order in which they are made; raises TemplateError."""
    order = list(KINDS)
    made = [one for one in render(choices.values(), Release(namespace, MANAGER)) if not is_hook(one)]
    return sorted(made, key=lambda one: order.index(one["kind"]))


def settings_of(wanted: Sequence[Mapping[str, Any]], configuration: str) -> list[Settings]:
    """Return the settings of each process, that of control first; raises SettingsError for a configuration."""
    roles: dict[str, Settings] = {}
    for body in wanted:
        variables = environment(body)
        if "LIQOD_DAEMON__ROLE" not in variables:
            continue
        settings = parse(configuration, variables, source="the configuration")
        # Gateway and nodes share an account, whose rights the role alone decides.
        roles.setdefault(settings.daemon.role, settings)
    return [roles[role] for role in sorted(roles, key=lambda role: role not in ("all", "control"))]


def environment(workload: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the variables of a workload's container, but for those that each pod has of its own."""
    listed = _container(workload).get("env") or []
    return {str(one["name"]): str(one["value"]) for one in listed if "value" in one}


def component_of(body: Mapping[str, Any]) -> str:
    """Return which part of liqod a pod is."""
    return str((body["metadata"].get("labels") or {}).get(_COMPONENT, ""))


def split_image(image: str) -> tuple[str, str]:
    """Return an image's repository and tag; a colon before a slash is that of a registry's port."""
    repository, colon, tag = image.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (image, "")


def _pod_spec(workload: Mapping[str, Any] | None) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = ((workload or {}).get("spec") or {}).get("template", {}).get("spec") or {}
    return spec


def _container(workload: Mapping[str, Any] | None) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(iter(_pod_spec(workload).get("containers") or ()), {})
    return found
