"""The container image's layers and archive, and the chart's values: what needs neither packages nor a cluster."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any
from unittest import TestCase

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
CHART = CHECKOUT / "packaging/chart"
sys.path.insert(0, str(CHECKOUT / "packaging/tools"))

from image import labels  # noqa: E402 (the tools are scripts beside each other)
from layers import Layer, archive  # noqa: E402
from project import link, version  # noqa: E402


def layer(*, reverse: bool = False) -> Layer:
    """Return a layer with a file in a new directory and a link to it."""
    made = Layer(1_700_000_000)
    steps = [lambda: made.add("opt/liqod/bin/liqodctl", b"#!\n", 0o4755), lambda: made.add_link("bin", "usr/bin")]
    for step in reversed(steps) if reverse else steps:
        step()
    return made


class ArchiveTests(TestCase):
    """An image as an archive in the layout of OCI."""

    def setUp(self) -> None:
        self.archive = archive([layer()], "amd64", {"User": "65532:65532"}, "localhost/liqod:test", 1_700_000_000)
        with tarfile.open(fileobj=io.BytesIO(self.archive)) as tar:
            self.files = {one.name: tar.extractfile(one).read() for one in tar if one.isreg()}  # type: ignore[union-attr]

    def blob(self, described: dict[str, Any]) -> bytes:
        """Return what a descriptor describes, after comparing its size and digest."""
        content = self.files[f"blobs/sha256/{described['digest'].removeprefix('sha256:')}"]
        self.assertEqual(len(content), described["size"])
        self.assertEqual(f"sha256:{hashlib.sha256(content).hexdigest()}", described["digest"])
        return content

    def test_whole(self) -> None:
        """Every descriptor's size and digest are those of the blob; the configuration has the digests of the tars."""
        self.assertEqual(json.loads(self.files["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
        (entry,) = json.loads(self.files["index.json"])["manifests"]
        self.assertEqual(entry["annotations"]["io.containerd.image.name"], "localhost/liqod:test")
        manifest = json.loads(self.blob(entry))
        config = json.loads(self.blob(manifest["config"]))
        plain = [gzip.decompress(self.blob(one)) for one in manifest["layers"]]
        self.assertEqual(config["rootfs"]["diff_ids"], [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in plain])
        self.assertEqual((config["architecture"], config["config"]["User"]), ("amd64", "65532:65532"))

    def test_same_bytes(self) -> None:
        """The same files give the same bytes in whatever order they were added."""
        again = archive([layer(reverse=True)], "amd64", {"User": "65532:65532"}, "localhost/liqod:test", 1_700_000_000)
        self.assertEqual(again, self.archive)

    def test_entries(self) -> None:
        """Everything is root's and of one date; parents exist; nobody becomes another user by a file's mode."""
        with tarfile.open(fileobj=io.BytesIO(layer().tar())) as tar:
            members = tar.getmembers()
        self.assertEqual(
            [one.name for one in members], ["bin", "opt", "opt/liqod", "opt/liqod/bin", "opt/liqod/bin/liqodctl"]
        )
        self.assertEqual({(one.uid, one.gid, one.mtime) for one in members}, {(0, 0, 1_700_000_000)})
        self.assertEqual(members[-1].mode, 0o755)

    def test_names(self) -> None:
        """containerd is given names in full, as it looks for them."""
        for short, full in (
            ("liqod:1", "docker.io/library/liqod:1"),
            ("me/liqod:1", "docker.io/me/liqod:1"),
            ("registry.example:5000/liqod:1", "registry.example:5000/liqod:1"),
        ):
            content = archive([], "arm64", {}, short, 0)
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                index = json.load(tar.extractfile("index.json"))  # type: ignore[arg-type]
            self.assertEqual(index["manifests"][0]["annotations"]["io.containerd.image.name"], full)


class LabelTests(TestCase):
    def test_origin(self) -> None:
        """The image says where its source is, and of which commit; ``-dirty`` where the checkout is another one."""
        said = {name.removeprefix("org.opencontainers.image."): value for name, value in labels().items()}
        self.assertEqual((said["version"], said["source"]), (version(), link("Source")))
        self.assertTrue(said["source"].startswith("https://"))
        self.assertRegex(said["revision"], "^[0-9a-f]{40}(-dirty)?$")
        with self.assertRaises(KeyError):
            link("Nothing")


class ChartTests(TestCase):
    """The chart's own files; tests/real/chart_install.py installs it."""

    def test_version(self) -> None:
        """The chart has the version of liqod, and its image by default, too."""
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        self.assertEqual((chart["version"], chart["appVersion"]), (version(), version()))

    def test_schema(self) -> None:
        """The schema knows every value and no other one, so that a misspelt value is refused.

        But for ``global``, which Helm gives to each chart that another one depends on.
        """
        schema = json.loads((CHART / "values.schema.json").read_text())
        self.assertEqual(schema["properties"].pop("global"), {"type": "object"})
        values = yaml.safe_load((CHART / "values.yaml").read_text())

        def compare(described: dict[str, Any], value: Any, path: str) -> None:
            if "properties" in described:
                self.assertIs(described["additionalProperties"], False, path)
                self.assertEqual(set(described["properties"]), set(value), path)
                for name, inner in described["properties"].items():
                    compare(inner, value[name], f"{path}.{name}")

        compare(schema, values, "values")
