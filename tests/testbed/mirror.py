"""A registry on the test network that has the one image of the test clusters under every name and tag.

Nodes ask it instead of Docker Hub, as a company's mirror is asked; so a pod's image may have a short name that people
use, and is pulled. The image serves a page at port 80 unless the pod names another command.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from tests.testbed import process
from tests.testbed.cluster import Cluster
from tests.testbed.image import make_image
from tests.testbed.lan import TEST_ADDRESS

PORT: Final = 5000
_ASKED_FOR: Final = re.compile(r"^/v2/.+/(manifests|blobs)/([^/?]+)")
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_COMMAND: Final = ["httpd", "-f", "-p", "80", "-h", "/www"]


class Mirror:
    """Such a registry, in the network namespace of the test network; ``asked`` has what nodes asked it for."""

    def __init__(self, lan: str, archive: Path) -> None:
        self._lan = lan
        self.asked: list[str] = []
        self._blobs, self._manifest = _contents(archive)
        self._server: ThreadingHTTPServer | None = None
        self._failed: Exception | None = None

    def start(self) -> None:
        """Answer until the process ends."""
        opened = threading.Event()
        threading.Thread(target=self._serve, args=(opened,), daemon=True).start()
        opened.wait()
        if self._failed is not None:
            raise self._failed

    def stop(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, path: str) -> tuple[str, bytes] | None:
        """Return type and content of what a path asks for, None where there is no such thing."""
        if path.rstrip("/") == "/v2":
            return "application/json", b"{}"
        if (found := _ASKED_FOR.match(path)) is None:
            return None
        kind, name = found.groups()
        if kind == "manifests" and (not name.startswith("sha256:") or name == _digest(self._manifest)):
            return _MANIFEST, self._manifest
        return ("application/octet-stream", self._blobs[name]) if name in self._blobs else None

    def _serve(self, opened: threading.Event) -> None:
        try:
            # This thread alone, and those that it starts for requests.
            process.enter(self._lan)
            self._server = ThreadingHTTPServer((TEST_ADDRESS, PORT), _requests_of(self))
        except Exception as error:
            self._failed = error
        opened.set()
        if self._server is not None:
            self._server.serve_forever()


def _requests_of(mirror: Mirror) -> type[BaseHTTPRequestHandler]:
    class Request(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._reply(with_content=False)

        def do_GET(self) -> None:
            self._reply(with_content=True)

        def log_message(self, format: str, *args: object) -> None:
            mirror.asked.append(self.path)

        def _reply(self, *, with_content: bool) -> None:
            found = mirror.answer(self.path)
            kind, content = found or ("application/json", b'{"errors": []}')
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Docker-Content-Digest", _digest(content))
            self.end_headers()
            if with_content:
                self.wfile.write(content)

    return Request


def use(cluster: Cluster) -> None:
    """Have the first node of a cluster ask the mirror for what has no registry in its name."""
    hosts = cluster.directory / "runtime" / "registries" / "docker.io" / "hosts.toml"
    hosts.parent.mkdir(parents=True, exist_ok=True)
    hosts.write_text(
        f'server = "https://registry-1.docker.io"\n[host."http://{TEST_ADDRESS}:{PORT}"]\n'
        'capabilities = ["pull", "resolve"]\n'
    )


def made(lan: str, directory: Path) -> Mirror:
    """Return a mirror with the image, which is written to a directory on the way."""
    archive = directory / "mirror.tar"
    if not archive.exists():
        make_image(archive)
    return Mirror(lan, archive)


def _contents(archive: Path) -> tuple[dict[str, bytes], bytes]:
    """Return the blobs of the image by digest, and its manifest."""
    with tarfile.open(archive) as tar:
        layer = _member(tar, "layer.tar")
        config = json.loads(_member(tar, "config.json"))
    config["config"]["Cmd"] = _COMMAND
    text = json.dumps(config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _descriptor(_CONFIG, text),
        "layers": [_descriptor(_LAYER, layer)],
    }
    return {_digest(blob): blob for blob in (layer, text)}, json.dumps(manifest).encode()


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()


def _descriptor(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
