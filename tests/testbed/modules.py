"""Go modules that are written when they are needed, because nothing but a version of one other module is in them.

What stands in ``gomod/`` has its ``go.sum`` in the checkout. These have it in the cache, written by ``go mod tidy``
beside the module: the versions are pinned here, and Go's checksum database answers for their content, or ``PINNED``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from attrs import field, frozen

from tests.testbed import versions

_GO: Final = "1.26.0"
_STAGING: Final = re.compile(r"^\s*(?:replace\s+)?(k8s\.io/\S+)\s+=>\s+\./staging/", re.MULTILINE)


@frozen
class Wanted:
    """A program of another module: the module with its version, its package, and modules that stand for others.

    ``beside``: versions of modules that it needs, where the ones that Go would choose do not go together.
    """

    module: str
    version: str
    package: str
    replaced: Mapping[str, str] = field(factory=dict)
    beside: Mapping[str, str] = field(factory=dict)

    def text(self) -> str:
        """Return the ``go.mod``."""
        return module_text([self.package], {self.module: self.version, **self.beside}, self.replaced)


PROGRAMS: Final[Mapping[str, Wanted]] = MappingProxyType(
    {
        # An ingress controller that is Go alone: no replaced modules, no page to be built, no other program.
        "skipper": Wanted(
            "github.com/zalando/skipper", f"v{versions.SKIPPER}", "github.com/zalando/skipper/cmd/skipper"
        ),
        "metrics-server": Wanted(
            "sigs.k8s.io/metrics-server",
            f"v{versions.METRICS_SERVER}",
            "sigs.k8s.io/metrics-server/cmd/metrics-server",
        ),
        "flanneld": Wanted("github.com/flannel-io/flannel", f"v{versions.FLANNEL}", "github.com/flannel-io/flannel"),
        # The proxy refuses the project's own module; it has k3s' copy, which k3s builds with in this way.
        # Without the last one a module is taken that has packages which are modules of their own by now.
        "kube-router": Wanted(
            "github.com/cloudnativelabs/kube-router/v2",
            f"v{versions.KUBE_ROUTER}",
            "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
            {"github.com/cloudnativelabs/kube-router/v2": f"github.com/k3s-io/kube-router/v2 v{versions.KUBE_ROUTER}"},
            {"google.golang.org/genproto": f"v{versions.GENPROTO}"},
        ),
    }
)
PINNED: Final = (
    f"github.com/k3s-io/kube-router/v2 v{versions.KUBE_ROUTER} h1:RZjUBIuitXCuYoCzm1aM6p5EgQFC5k3N72j4pBIc2j4=",
    f"github.com/k3s-io/kube-router/v2 v{versions.KUBE_ROUTER}/go.mod h1:RaxDc+SBKB33+fjao+LeDue4CaUajk02eCHXVK/V4YE=",
)
"""Lines of ``go.sum`` for what the checksum database does not always know; k3s' own ``go.sum`` has the same."""
OWN: Final = ("home-client", "cloud-lifecycle")
"""Programs of our own around Kubernetes' libraries: their source is in ``gomod/``, without a ``go.sum``."""


def module_text(tools: Sequence[str], required: Mapping[str, str], replaced: Mapping[str, str]) -> str:
    """Return a ``go.mod`` whose tools are to be built; ``replaced`` has the text after the arrow."""
    lines = ["module liqod.invalid/testbed/made", "", f"go {_GO}", ""]
    lines += [f"require {name} {version}" for name, version in required.items()]
    lines += ["", "tool (", *(f"\t{tool}" for tool in tools), ")"]
    if replaced:
        lines += ["", "replace (", *(f"\t{name} => {other}" for name, other in replaced.items()), ")"]
    return "\n".join([*lines, ""])


def kubernetes_text(version: str, its_own: str) -> str:
    """Return the ``go.mod`` for the programs of a release, from the text of Kubernetes' own one.

    Kubernetes builds with parts of itself in ``staging``; each is a module of its own, whose major version is 0.
    """
    parts = _STAGING.findall(its_own)
    if not parts:
        raise ValueError(f"the go.mod of Kubernetes {version} names no module in staging")
    beside = f"v0.{version.partition('.')[2]}"
    tools = [f"k8s.io/kubernetes/cmd/{name}" for name in versions.SERVERS]
    return module_text(tools, {"k8s.io/kubernetes": f"v{version}"}, {name: f"{name} {beside}" for name in parts})


def place(name: str) -> Path:
    """Return the directory of the module of one of these programs."""
    return versions.built(name).parent / "module"


def furnish(directory: Path, text: str, source: Path | None = None) -> bool:
    """Write a module, with the files of ``source`` where it has any; returns whether it is to be made tidy.

    A module that was made tidy for the same text is left as it is.
    """
    tidy = directory / "go.sum"
    mark = directory / "wanted"
    if tidy.exists() and mark.exists() and mark.read_text() == text:
        return False
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    if source is not None:
        for file in source.glob("*.go"):
            shutil.copyfile(file, directory / file.name)
    (directory / "go.mod").write_text(text)
    known = [line for line in PINNED if line.partition(" h1:")[0].removesuffix("/go.mod") in text]
    tidy.write_text("".join(f"{line}\n" for line in known))
    return True


def note_tidy(directory: Path, text: str) -> None:
    """Note that a module was made tidy for a text."""
    (directory / "wanted").write_text(text)
