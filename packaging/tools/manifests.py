"""``make manifests``: manifests for ``kubectl apply -k``, out of the chart and of what ``liqodctl install`` makes.

They are kept in the repository; a test compares them with what this makes. Of kinds that not every supported API server
has they hold none: the webhook does what MutatingAdmissionPolicies would do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from project import CHECKOUT, version

from liqod.cli.console.render import as_documents
from liqod.cli.setup.install import objects_of
from liqod.cli.setup.surroundings.judge import ENFORCE
from liqod.cli.setup.up.chart.render import Body, Release, is_hook, render
from liqod.cli.setup.up.pods.wanted import settings_of
from liqod.kube.manifests import MANAGED_BY
from liqod.model.diagnosis.releases import VERSION_LABEL
from liqod.model.names import FIELD_MANAGER

VARIANTS: Final[Mapping[str, Body]] = {
    "packaging/manifests": {},
    "packaging/manifests/network": {"network": {"enabled": True}, "names": {"enabled": True}},
}
"""The directories, each with the values of the chart that it stands for."""
DEFINITIONS: Final = "liqod/kube/manifests"
NEW: Final = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "CustomResourceDefinition")
"""Kinds that are left out: of API servers before 1.36, and those in ``DEFINITIONS``."""
HEAD: Final = "# Made by `make manifests` out of packaging/chart and `liqodctl install --print`: change those.\n"


def main() -> None:
    """Write the files, or with --check say which ones differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, and fail where a file differs")
    arguments = parser.parse_args()
    different = [name for name, text in files() if _read(CHECKOUT / name) != text]
    for name, text in files():
        if name in different and not arguments.check:
            (CHECKOUT / name).parent.mkdir(parents=True, exist_ok=True)
            (CHECKOUT / name).write_text(text, encoding="utf-8")
        if name in different:
            print(name)
    if arguments.check and different:
        sys.exit("run `make manifests`")


def files() -> Iterator[tuple[str, str]]:
    """Yield the name of each file in the repository, with its text."""
    definitions = sorted(path.name for path in (CHECKOUT / DEFINITIONS).glob("*.yaml"))
    listed = [name for name in definitions if name != "kustomization.yaml"]
    pairs = {MANAGED_BY: FIELD_MANAGER, VERSION_LABEL: version()}
    kustomization = {"resources": listed, "labels": [{"pairs": pairs}]}
    yield f"{DEFINITIONS}/kustomization.yaml", HEAD + _kustomization(kustomization)
    for place, values in VARIANTS.items():
        up = "/".join([".."] * (place.count("/") + 1))
        image = {"name": "liqod", "newName": "liqod", "newTag": version()}
        kustomization = {"resources": [f"{up}/{DEFINITIONS}", "liqod.yaml"], "images": [image]}
        yield f"{place}/kustomization.yaml", HEAD + _kustomization(kustomization)
        yield f"{place}/liqod.yaml", HEAD + as_documents(objects(values))


def objects(values: Mapping[str, Any]) -> list[Body]:
    """Return all objects but definitions: the namespace, the accounts with their rights and bounds, and the pods."""
    release = Release(manager="kubectl")
    pods = [one for one in render({**values, "setup": {"enabled": False}}, release) if not is_hook(one)]
    found: dict[tuple[str, str, str], Body] = {}
    for settings in settings_of(pods, ""):
        for one in objects_of(settings):
            if one["kind"] not in NEW:
                found.setdefault(_identity(one), one)
    namespace = found["Namespace", "", release.namespace]
    namespace["metadata"]["labels"][ENFORCE] = "privileged"
    # What is in a namespace comes after it, and roles in the cluster's own ones need nothing.
    first = sorted(found.values(), key=lambda one: one["kind"] != "Namespace")
    return [*first, *pods]


def _identity(body: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = body["metadata"]
    return body["kind"], meta.get("namespace", ""), meta["name"]


def _kustomization(content: Body) -> str:
    return as_documents([{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", **content}])


def _read(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


if __name__ == "__main__":
    main()
