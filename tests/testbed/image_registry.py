"""A registry of images on a test network, as far as nodes pull from it: tags, manifests and blobs, by plain HTTP.

``start`` serves what ``add`` put into a folder. Nodes look for every image at it
(``tests.testbed.node.use_registry``), whichever registry its name begins with: ``nginx`` is what was added as
``library/nginx:latest``.

Source: https://github.com/opencontainers/distribution-spec/blob/main/spec.md, "Pull".
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tarfile
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.testbed import process
from tests.testbed.image import BUSYBOX
from tests.testbed.lan import TEST_ADDRESS
from tests.testbed.process import Process

PORT: Final = 5000
URL: Final = f"http://{TEST_ADDRESS}:{PORT}"
NGINX: Final = ("httpd", "-f", "-p", "80", "-h", "/www")
"""What stands in for nginx: a web server all the same."""
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
ASKED: Final = re.compile(r"/v2/(?P<name>[a-z0-9._/-]+)/(?P<kind>manifests|blobs)/(?P<reference>[A-Za-z0-9._:-]+)")
"""The path of a request for content."""


def start(lan: str, folder: Path) -> Process:
    """Serve a folder in the namespace of a test network."""
    words = [sys.executable, "-m", "tests.testbed.image_registry", str(folder), str(PORT)]
    return process.spawn_in(lan, words, log=folder.with_suffix(".log"))


def add_usual(folder: Path, archive: Path) -> None:
    """Put the image of the test clusters into a folder under its own name, and as what people run first."""
    add_docker(folder, archive, "library/nginx:latest", NGINX)
    for name in (BUSYBOX.removeprefix("localhost/"), BUSYBOX.replace("localhost", "library")):
        add_docker(folder, archive, name)


def add(folder: Path, archive: Path, name: str) -> None:
    """Put the image of an archive in the layout of OCI into a folder under a name with a tag."""
    with tarfile.open(archive) as tar:
        index = json.loads(_read(tar, "index.json"))
        for member in tar.getnames():
            if member.startswith("blobs/sha256/") and tar.getmember(member).isreg():
                _store(folder, _read(tar, member))
    (entry,) = index["manifests"]
    _tag(folder, name, entry["digest"])


def add_docker(folder: Path, archive: Path, name: str, command: Sequence[str] = ()) -> None:
    """Put the image of an archive in docker's format into a folder, with a command of its own where one is given."""
    with tarfile.open(archive) as tar:
        (described,) = json.loads(_read(tar, "manifest.json"))
        config = json.loads(_read(tar, described["Config"]))
        layers = [_read(tar, layer) for layer in described["Layers"]]
    if command:
        config["config"]["Cmd"] = list(command)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _described(folder, CONFIG, json.dumps(config).encode()),
        "layers": [_described(folder, LAYER, layer) for layer in layers],
    }
    _tag(folder, name, _store(folder, json.dumps(manifest).encode()))


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    found = tar.extractfile(name)
    assert found is not None, name
    return found.read()


def _store(folder: Path, content: bytes) -> str:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    place = folder / digest
    if not place.exists():
        place.write_bytes(content)
    return digest


def _described(folder: Path, media: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media, "digest": _store(folder, content), "size": len(content)}


def _tag(folder: Path, name: str, digest: str) -> None:
    place = folder / "tags" / name.replace("/", "+")
    place.parent.mkdir(exist_ok=True)
    place.write_text(digest)


def found(folder: Path, path: str) -> tuple[str, bytes] | None:
    """Return the digest and the content that a path asks for, or None."""
    asked = ASKED.fullmatch(path.partition("?")[0])
    if asked is None:
        return None
    digest = asked["reference"]
    if asked["kind"] == "manifests" and not digest.startswith("sha256:"):
        tag = folder / "tags" / f"{asked['name']}:{digest}".replace("/", "+")
        if not tag.is_file():
            return None
        digest = tag.read_text()
    blob = folder / digest
    return (digest, blob.read_bytes()) if digest.startswith("sha256:") and blob.is_file() else None


def serve(folder: Path, port: int) -> None:
    """Serve a folder until this process is ended."""

    class Answers(BaseHTTPRequestHandler):
        """One client of the registry."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Answer with content, or say that there is none."""
            self._answer(body=True)

        def do_HEAD(self) -> None:
            """Answer with what describes content."""
            self._answer(body=False)

        def _answer(self, *, body: bool) -> None:
            is_root = self.path == "/v2/"
            what = ("", b"{}") if is_root else found(folder, self.path)
            digest, content = what or ("", b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
            self.send_response(200 if what else 404)
            blob = "/blobs/" in self.path
            self.send_header(
                "Content-Type", "application/octet-stream" if blob else MANIFEST if digest else "text/json"
            )
            self.send_header("Content-Length", str(len(content)))
            if digest:
                self.send_header("Docker-Content-Digest", digest)
            self.end_headers()
            if body:
                self.wfile.write(content)

    ThreadingHTTPServer(("", port), Answers).serve_forever()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
