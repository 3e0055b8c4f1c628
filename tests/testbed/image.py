"""The one container image of the test clusters, made on the spot from the machine's static busybox.

It is an archive in docker's format that holds the image under two names: ``localhost/busybox:1`` for the tests' pods
and ``localhost/pause:1`` for containerd's own container of every pod. Pods use it with ``imagePullPolicy: Never``.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

BUSYBOX: Final = "localhost/busybox:1"
PAUSE: Final = "localhost/pause:1"

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
ARCHITECTURE: Final = _ARCHITECTURES.get(platform.machine(), platform.machine())
"""This machine's architecture as images name it."""
_PAUSE: Final = b"#!/bin/sh\ntrap 'exit 0' TERM INT\nwhile :; do sleep 1000000 & wait $!; done\n"
_FILES: Final = {
    "pause": (_PAUSE, 0o755),
    "etc/passwd": (b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n", 0o644),
    "www/index.html": (b"hello\n", 0o644),
}


def make_image(archive: Path) -> None:
    """Write the image archive."""
    busybox = shutil.which("busybox") or "/bin/busybox"
    applets = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for directory, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("www", 0o755)):
            add_directory(tar, directory, mode)
        add_file(tar, "bin/busybox", Path(busybox).read_bytes(), 0o755)
        for applet in applets:
            if applet != "busybox":
                add_link(tar, f"bin/{applet}", "busybox")
        for name, (content, mode) in _FILES.items():
            add_file(tar, name, content, mode)
    content = layer.getvalue()
    config = {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Entrypoint": [], "Cmd": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
    }
    index = [{"Config": "config.json", "RepoTags": [PAUSE, BUSYBOX], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        add_file(tar, "config.json", json.dumps(config).encode(), 0o644)
        add_file(tar, "layer.tar", content, 0o644)
        add_file(tar, "manifest.json", json.dumps(index).encode(), 0o644)


def add_directory(tar: tarfile.TarFile, name: str, mode: int) -> None:
    """Add a directory."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    tar.addfile(entry)


def add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    """Add a symbolic link."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def add_file(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Add a file."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
