"""The container images that Kubernetes' end-to-end tests ask for, made from this machine's own programs.

There is no registry: one archive in docker's format holds them all, under the names that the tests use. All share one
layer: busybox with its links, the programs of Debian that the tests' scripts call, with their libraries, and agnhost.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen

from tests.testbed import versions
from tests.testbed.image import ARCHITECTURE, add_directory, add_file, add_link

PACKAGES: Final[dict[str, str]] = {
    "curl": "curl",
    "bind9-dnsutils": "dig",
    "netcat-openbsd": "nc.openbsd",
    "libcap2-bin": "capsh",
    "bash": "bash",
    "iproute2": "ip",
    "util-linux": "setpriv",
    "libc-bin": "getent",
}
"""Debian packages with the programs that are copied into the images."""

REPOSITORY: Final = "registry.k8s.io/e2e-test-images"
_SOURCE: Final = "source/kubernetes/test/images"
_PASSWD: Final = b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
_GROUP: Final = b"root:x:0:\nuser:x:1000:\nsupplemental:x:50000:user\nnogroup:x:65534:\n"


@frozen
class Image:
    """One image: its names, what it runs, and files that it has beside the common layer."""

    names: Sequence[str]
    entrypoint: Sequence[str] = ()
    cmd: Sequence[str] = ()
    user: str = ""
    files: Mapping[str, tuple[bytes, int]] = field(factory=dict)


def images() -> list[Image]:
    """Return the images, after the Dockerfiles in Kubernetes' ``test/images``."""
    nnp = versions.program("nnp").read_bytes()
    return [
        Image([f"{REPOSITORY}/agnhost:2.63.0", f"{REPOSITORY}/agnhost:2.55"], ["/agnhost"], ["pause"]),
        Image([f"{REPOSITORY}/busybox:1.37.0-1", f"{REPOSITORY}/busybox:1.36.1-1"], cmd=["sh"]),
        Image([f"{REPOSITORY}/glibc-dns-testing:2.0.0"], ["/agnhost"], ["pause"]),
        # What these tests want of nginx is a web server on port 80.
        Image(
            [f"{REPOSITORY}/nginx:1.15-4", f"{REPOSITORY}/nginx:1.27-0"], cmd=["/agnhost", "netexec", "--http-port=80"]
        ),
        Image([f"{REPOSITORY}/nonroot:1.5"], cmd=["sh"], user="1234"),
        Image([f"{REPOSITORY}/nonewprivs:1.4"], cmd=["nnp"], files={"usr/local/bin/nnp": (nnp, 0o6755)}),
        Image(["registry.k8s.io/pause:3.10.2", "registry.k8s.io/pause:3.10"], ["/agnhost"], ["pause"]),
        *(_demo(name) for name in ("kitten", "nautilus")),
    ]


def make_images(archive: Path) -> None:
    """Write the archive with all images; CommandFailed or OSError when a program is missing."""
    common = _layer(_common_files(), links=_links())
    manifest: list[dict[str, Any]] = []
    with tarfile.open(archive, "w") as tar:
        add_file(tar, "common.tar", common)
        for number, image in enumerate(images()):
            layers, blobs = ["common.tar"], [common]
            if image.files:
                own = _layer(image.files)
                add_file(tar, f"{number}.tar", own)
                layers.append(f"{number}.tar")
                blobs.append(own)
            add_file(tar, f"{number}.json", json.dumps(_config(image, blobs)).encode())
            manifest.append({"Config": f"{number}.json", "RepoTags": list(image.names), "Layers": layers})
        add_file(tar, "manifest.json", json.dumps(manifest).encode())


def _demo(name: str) -> Image:
    html = versions.built("e2e.test").parent / _SOURCE / name / "html"
    files = {file.name: (file.read_bytes(), 0o644) for file in html.iterdir()}
    return Image([f"{REPOSITORY}/{name}:1.8"], ["/agnhost"], ["test-webserver"], files=files)


def _config(image: Image, layers: Sequence[bytes]) -> dict[str, Any]:
    diff_ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    run = {
        "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
        "Entrypoint": list(image.entrypoint),
        "Cmd": list(image.cmd),
        "User": image.user,
        "WorkingDir": "/",
    }
    return {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }


def _layer(files: Mapping[str, tuple[bytes, int]], links: Mapping[str, str] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        add_directory(tar, "tmp", 0o1777)
        for parent in sorted({str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}):
            add_directory(tar, parent, 0o755)
        for name, (content, mode) in files.items():
            add_file(tar, name, content, mode)
        for name, target in (links or {}).items():
            add_link(tar, name, target)
    return out.getvalue()


def _common_files() -> dict[str, tuple[bytes, int]]:
    """Return what all images hold."""
    porter = versions.built("e2e.test").parent / _SOURCE / "agnhost" / "porter"
    files = {
        "etc/passwd": (_PASSWD, 0o644),
        "etc/group": (_GROUP, 0o644),
        "etc/nsswitch.conf": (b"passwd: files\ngroup: files\nhosts: files dns\n", 0o644),
        "root/.keep": (b"", 0o644),
        "agnhost": (versions.program("agnhost").read_bytes(), 0o755),
        "localhost.crt": ((porter / "localhost.crt").read_bytes(), 0o644),
        "localhost.key": ((porter / "localhost.key").read_bytes(), 0o644),
        "bin/busybox": (Path(_find("busybox")).read_bytes(), 0o755),
    }
    for program in PACKAGES.values():
        path = Path(_find(program))
        name = "nc" if program == "nc.openbsd" else program
        files[f"usr/bin/{name}"] = (path.read_bytes(), 0o755)
        for library in _libraries(path):
            files[str(library).lstrip("/")] = (library.read_bytes(), 0o755)
    return files


def _links() -> dict[str, str]:
    """Return the links of busybox, but for what a program of Debian does better."""
    listed = subprocess.run([_find("busybox"), "--list"], check=True, capture_output=True, text=True).stdout.split()
    taken = {"busybox", "nc", "ip", "bash", "setpriv", "sh"}
    return {**{f"bin/{applet}": "busybox" for applet in listed if applet not in taken}, "bin/sh": "/usr/bin/bash"}


def _libraries(program: Path) -> Iterator[Path]:
    """Yield the shared libraries of a program, under the paths by which it finds them."""
    listed = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        if found := re.search(r"(/\S+) \(0x", line):
            yield Path(found[1])


def _find(program: str) -> str:
    if found := shutil.which(program, path="/usr/bin:/bin:/usr/sbin:/sbin"):
        return found
    raise FileNotFoundError(f"the images of the end-to-end tests need the program {program}")
