"""Every file in examples/ is of use as it stands; the records among them are applied by tests.scenario.test_records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.setup.up.chart.render import Release, default_values, render
from liqod.cli.setup.up.pods.wanted import settings_of
from liqod.config.load import parse
from liqod.kube import manifests

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FOLDERS = ("chart", "gitops", "host")
RECORDS = ("borrower", "lender", "offloading")
CUSTOM = re.compile(r"^resource\.customizations\.health\.([a-z.]+)_([A-Za-z]+)$")
PATH = re.compile(r"\b(?:obj\.)?status\.(\w+)")


def strange(values: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Return the keys that the chart does not have; what is empty there may hold anything."""
    found = [key for key in values if key not in known]
    for key, value in values.items():
        there = known.get(key)
        if isinstance(value, Mapping) and isinstance(there, Mapping) and there:
            found += [f"{key}.{inner}" for inner in strange(value, there)]
    return found


def schemas() -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the fields of each kind of record, by group with version and kind."""
    found = {}
    for one in manifests.definitions():
        for version in one["spec"]["versions"]:
            key = (f"{one['spec']['group']}/{version['name']}", one["spec"]["names"]["kind"])
            found[key] = version["schema"]["openAPIV3Schema"]["properties"]
    return found


def unknown_status(text: str, properties: Mapping[str, Any]) -> list[str]:
    """Return the fields of the status that an expression looks at, and that the record does not have."""
    return sorted(set(PATH.findall(text)) - properties["status"]["properties"].keys())


class ExampleTests(SynchronousTestCase):
    def test_places(self) -> None:
        """There are no other folders, which nothing would read."""
        self.assertEqual(sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir()), sorted(FOLDERS))
        self.assertEqual(
            sorted(path.name for path in (EXAMPLES / "gitops").iterdir()), sorted((*RECORDS, "argocd", "flux"))
        )

    def test_values(self) -> None:
        """The chart has each value, is rendered with them, and their settings are as the daemons would take them."""
        files = sorted((EXAMPLES / "chart").glob("*"))
        self.assertEqual([file.stem for file in files], ["high-availability", "one-node", "several-nodes"])
        for file in files:
            values = yaml.safe_load(file.read_text())
            self.assertEqual(strange(values, default_values()), [], file.name)
            pods = render(values, Release())
            for settings in settings_of(pods, ""):
                self.assertEqual(settings.cluster.name, "rome", file.name)
            (daemon,) = (one for one in pods if (one["kind"], one["metadata"]["name"]) == ("Deployment", "liqod"))
            image = daemon["spec"]["template"]["spec"]["containers"][0]["image"]
            self.assertTrue(image.startswith("registry.example.com/liqod:"), image)
            self.assertEqual(daemon["spec"]["replicas"], values.get("replicas", 2))

    def test_strange_values(self) -> None:
        """A value that the chart does not have is found, at any depth."""
        self.assertEqual(
            strange({"replica": 1, "network": {"enable": True}}, default_values()), ["replica", "network.enable"]
        )

    def test_host(self) -> None:
        """The configuration of a host is one that the daemon takes, and says something beside the defaults."""
        settings = parse((EXAMPLES / "host/liqod.toml").read_text(), {})
        self.assertEqual((settings.cluster.name, settings.sharing.percentage), ("milan", 50))

    def test_argocd(self) -> None:
        """Argo CD is given records that exist, and looks at fields of their status that they have."""
        known = {(group.partition("/")[0], kind): fields for (group, kind), fields in schemas().items()}
        application = yaml.safe_load((EXAMPLES / "gitops/argocd/application.yaml").read_text())
        for one in application["spec"]["ignoreDifferences"]:
            fields = known[one["group"], one["kind"]]["spec"]["properties"]
            for pointer in one["jsonPointers"]:
                self.assertIn(pointer.removeprefix("/spec/"), fields)
        health = yaml.safe_load((EXAMPLES / "gitops/argocd/health.yaml").read_text())["data"]
        self.assertGreater(len(health), 5)
        for name, script in health.items():
            found = CUSTOM.match(name)
            assert found is not None, name
            self.assertEqual(unknown_status(script, known[found[1], found[2]]), [], name)

    def test_flux(self) -> None:
        """Flux is given folders that exist, and records, with fields of their status that these have."""
        documents = list(yaml.safe_load_all((EXAMPLES / "gitops/flux/kustomization.yaml").read_text()))
        names = {one["metadata"]["name"] for one in documents}
        known = schemas()
        for one in documents:
            spec = one["spec"]
            folder = spec["path"].removeprefix("./liqod/")
            self.assertIn(folder, (*RECORDS, "./shop"))
            self.assertLessEqual({each["name"] for each in spec.get("dependsOn", [])}, names)
            for check in spec.get("healthCheckExprs", []):
                fields = known[check["apiVersion"], check["kind"]]
                text = " ".join(value for key, value in check.items() if key in ("current", "failed", "inProgress"))
                self.assertTrue(PATH.findall(text), check)
                self.assertEqual(unknown_status(text, fields), [], check)

    def test_unknown_fields(self) -> None:
        """A field of a status that no record has is found."""
        fields = schemas()["discovery.liqo.io/v1alpha1", "ForeignCluster"]
        self.assertEqual(unknown_status("obj.status.phaze == 'x' and status.phase", fields), ["phaze"])
