"""Views of policies, and of all pods of this cluster, small enough for ten thousand of them."""

from __future__ import annotations

from typing import Any

import msgspec

from liqod.model.objects.interning import Interner
from liqod.model.objects.meta import Object, View
from liqod.model.objects.pod_completion import FINISHED


class NetworkPolicy(Object, frozen=True):
    """A NetworkPolicy of this cluster; its spec as it is."""

    spec: Any = None


class ContainerPort(View, frozen=True):
    """A port of a container."""

    name: str = ""
    protocol: str = "TCP"
    container_port: int = 0


class Container(View, frozen=True):
    """The ports of a container."""

    ports: list[ContainerPort] | None = None


class PodSpec(View, frozen=True):
    """Where a pod runs, and its ports."""

    node_name: str = ""
    host_network: bool = False
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None


class PodIP(View, frozen=True):
    """An address of a pod."""

    ip: str = ""


class PodStatus(View, frozen=True):
    """The addresses of a pod, one of each IP version."""

    phase: str = ""
    pod_ips: list[PodIP] | None = msgspec.field(name="podIPs", default=None)


_specs: Interner[PodSpec] = Interner(msgspec.json.Encoder().encode)


class AnyPod(Object, frozen=True):
    """A pod of this cluster, as policies of others see it. Pods of one owner have equal specs, which are interned."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "spec", _specs(self.spec))

    @property
    def addresses(self) -> list[str]:
        """Its own addresses; none of a pod that has ended, or has those of its host."""
        if self.spec.host_network or self.status.phase in FINISHED:
            return []
        return [one.ip for one in self.status.pod_ips or () if one.ip]

    @property
    def named_ports(self) -> list[tuple[str, str, int]]:
        """Its ports with names: name, protocol, number."""
        containers = (*(self.spec.containers or ()), *(self.spec.init_containers or ()))
        return [
            (port.name, port.protocol, port.container_port)
            for one in containers
            for port in one.ports or ()
            if port.name
        ]


def is_same(old: AnyPod | None, new: AnyPod | None) -> bool:
    """Return whether a change of a pod leaves it as policies see it."""
    return old is not None and new is not None and _seen(old) == _seen(new)


def _seen(pod: AnyPod) -> tuple[object, ...]:
    return pod.metadata.labels, pod.spec, pod.addresses
