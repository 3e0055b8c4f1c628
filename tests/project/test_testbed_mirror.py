"""What the registry of the test network answers, as nodes ask it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.testbed.mirror import Mirror


def archive(path: Path) -> Path:
    """Write an image archive as the test clusters have it, of a few bytes."""
    files = {"config.json": json.dumps({"os": "linux", "config": {"Cmd": ["/pause"]}}).encode(), "layer.tar": b"layer"}
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


class MirrorTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.mirror = Mirror("", archive(Path(self.mktemp()).absolute()))

    def test_each_name(self) -> None:
        """Under every name and tag, and under its digest, there is one image, all of whose parts can be had."""
        answers = {self.mirror.answer(f"/v2/library/{name}?ns=docker.io") for name in (
            "nginx/manifests/latest", "busybox/manifests/1")}  # fmt: skip
        (found,) = answers
        assert found is not None
        manifest = json.loads(found[1])
        self.assertEqual(manifest["mediaType"], found[0])
        digest = f"sha256:{hashlib.sha256(found[1]).hexdigest()}"
        self.assertEqual(self.mirror.answer(f"/v2/library/nginx/manifests/{digest}"), found)
        for part in (manifest["config"], *manifest["layers"]):
            answer = self.mirror.answer(f"/v2/library/nginx/blobs/{part['digest']}")
            assert answer is not None
            self.assertEqual(f"sha256:{hashlib.sha256(answer[1]).hexdigest()}", part["digest"])
            self.assertEqual(len(answer[1]), part["size"])

    def test_what_is_not_there(self) -> None:
        """Other digests and other paths are not found; that it is a registry is said."""
        for path in ("/v2/library/nginx/blobs/sha256:0", "/v2/library/nginx/manifests/sha256:0", "/v1/x", "/"):
            self.assertIsNone(self.mirror.answer(path), path)
        self.assertIsNotNone(self.mirror.answer("/v2/"))
