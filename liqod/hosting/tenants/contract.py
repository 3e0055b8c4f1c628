"""The contract of tenants: what a borrower may write in the namespaces granted to it. Pure.

Everything is an allow list: the fixed part is here and in ``model.objects.portable_metadata``, the rest is granted by
``[hosting]`` and ``[sharing]``. The daemon applies it when it creates a pod (``shadowpods.pod_contract``), the API
server where a borrower writes the object itself (``policies``). docs/tenants.md describes it for administrators.
"""

from __future__ import annotations

from typing import Final

import attrs

from liqod.config.schema import HostingSettings, Settings
from liqod.model.objects.portable_metadata import ANNOTATION_DOMAINS, LABEL_DOMAINS
from liqod.model.objects.tenant_nodes import TenantNodes

VOLUMES: Final = frozenset(
    {
        "configMap",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
"""Kinds of volumes that hold what is the tenant's own."""
PRIORITY_CLASS: Final = "liqod-tenant"
"""The priority class of tenants' pods that liqod creates; with another name in the settings it creates none."""


@attrs.frozen
class Contract:
    """What tenants may write: ``granted`` are the settings, ``load_balancer_classes`` those that are offered.

    ``own_namespaces`` are those that the settings give to liqod, ``own_storage_class`` the class whose volumes it
    makes for this cluster's own pods, by claims in a namespace that no tenant's quota counts.
    """

    granted: HostingSettings = attrs.field(factory=HostingSettings)
    load_balancer_classes: tuple[str, ...] = ()
    own_namespaces: tuple[str, ...] = ()
    own_storage_class: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Contract:
        """Return the contract of a configuration."""
        own = (settings.kubernetes.namespace, settings.storage.namespace)
        classes = tuple(settings.sharing.load_balancer_classes)
        return cls(settings.hosting, classes, own, settings.storage.virtual_class)

    @property
    def makes_priority_class(self) -> bool:
        """Whether the priority class of tenants' pods is liqod's own."""
        return self.granted.priority_class == PRIORITY_CLASS

    @property
    def labels(self) -> tuple[str, ...]:
        """Keys of labels, and prefixes of them that end with "/" or "."; plain names are allowed too."""
        return (*LABEL_DOMAINS, *self.granted.labels)

    @property
    def annotations(self) -> tuple[str, ...]:
        """Keys of annotations, and prefixes that end with "/" or "."; plain names are allowed too."""
        return (*ANNOTATION_DOMAINS, *self.granted.annotations)

    @property
    def nodes(self) -> TenantNodes:
        """The nodes that pods may use."""
        return TenantNodes.of(self.granted.control_plane_nodes, self.granted.tolerations)

    @property
    def tolerations(self) -> frozenset[str]:
        """Keys of taints that pods may tolerate; two of them every pod has (admission DefaultTolerationSeconds)."""
        return self.nodes.tolerated

    @property
    def volumes(self) -> frozenset[str]:
        """Kinds of volumes that pods may have."""
        return VOLUMES | frozenset(self.granted.volumes)
