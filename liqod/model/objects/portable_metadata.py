"""Labels and annotations that may go with an object to any cluster: those that no controller there acts on. Pure.

A lender grants these to every tenant, and a borrower falls back to these where a lender grants no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

METADATA_POLICY: Final = "liqod-borrower-metadata"
"""The lender's admission policy for labels and annotations; its name is in the API server's refusal."""
POD_POLICY: Final = "liqod-borrower-pods"
"""The lender's admission policy for ShadowPods; its name is in the API server's refusal, too."""
MAX_KEYS: Final = 64
"""Labels, and annotations, of an object that a borrower writes at a lender."""
MAX_ANNOTATIONS_SIZE: Final = 64 << 10
"""Characters of the values of all annotations of such an object. Values of labels are short (63 characters)."""
OUR_DOMAINS: Final = ("liqo.io/", "offloading.liqo.io/", "storage.liqo.io/")
LABEL_DOMAINS: Final = (
    *OUR_DOMAINS,
    "app.kubernetes.io/",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/",
    "endpointslice.kubernetes.io/managed-by",
    "helm.sh/",
    "kubernetes.io/service-name",
    "service.kubernetes.io/headless",
    "statefulset.kubernetes.io/pod-name",
)
"""Labels that describe a workload and that its own services select; no controller gives rights by them."""
ANNOTATION_DOMAINS: Final = (
    *OUR_DOMAINS,
    "checksum/",
    "deployment.kubernetes.io/",
    "helm.sh/",
    "kubectl.kubernetes.io/",
    "kubernetes.io/description",
    "meta.helm.sh/",
    "service.kubernetes.io/topology-mode",
)
"""Annotations that tools at home write for themselves."""
ACTED_ON: Final = (
    "aadpodidbinding",
    "cortex_alerts",
    "cortex_rules",
    "grafana_alert",
    "grafana_contact_point",
    "grafana_dashboard",
    "grafana_datasource",
    "grafana_notifier",
    "grafana_plugin",
    "loki_rule",
)
"""Plain keys that a controller acts on: AAD Pod Identity gives a pod with this label an identity of Azure, the sidecars
of the charts of Grafana, Loki and Cortex take what config maps and secrets with these labels hold, in all
namespaces."""
CLUSTER_DOMAINS: Final = ("kubernetes.io", "k8s.io")
"""Domains reserved for Kubernetes ("Well-Known Labels, Annotations and Taints"): what is not listed above describes the
cluster that an object is in, as ``topology.kubernetes.io/zone`` does on pods since 1.35 (PodTopologyLabels)."""


def is_allowed(key: str, allowed: Sequence[str]) -> bool:
    """Return whether a label or annotation is allowed: a plain name, in an allowed domain, or named itself.

    Keys without a domain are private to users (Kubernetes: "Labels and Selectors", syntax). Runtimes do not keep to
    that: Kata, CRI-O and runc act on annotations such as ``io.katacontainers.config.hypervisor.path`` and
    ``org.systemd.property.X``, so that a plain name has no dot.
    """
    return is_plain(key) or any(key.startswith(one) if one.endswith(("/", ".")) else key == one for one in allowed)


def is_plain(key: str) -> bool:
    """Return whether a key has no domain, nothing that could be read as one, and no meaning to a controller."""
    return "/" not in key and "." not in key and key not in ACTED_ON


def is_of_cluster(key: str) -> bool:
    """Return whether a label or annotation is of a domain that Kubernetes keeps to itself."""
    domain, slash, _ = key.partition("/")
    return bool(slash) and any(domain == one or domain.endswith(f".{one}") for one in CLUSTER_DOMAINS)


def portable(metadata: Mapping[str, str], allowed: Sequence[str]) -> dict[str, str]:
    """Return the labels or annotations that are allowed."""
    return {key: value for key, value in metadata.items() if is_allowed(key, allowed)}


def few(metadata: Mapping[str, str], most: int) -> dict[str, str]:
    """Return as many as a lender takes, with values of ``most`` characters together: ours first, then short ones."""
    ours_first = sorted(metadata, key=lambda key: (not key.startswith(OUR_DOMAINS), len(metadata[key]), key))
    ordered = ours_first[:MAX_KEYS]
    lengths = accumulate(len(metadata[key]) for key in ordered)
    return {key: metadata[key] for key, length in zip(ordered, lengths, strict=True) if length <= most}
