"""Layers of a container image, and the archive that they are carried in; the same files give the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import debian

MERGED: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Directories that are links into /usr, see https://wiki.debian.org/UsrMerge; packages still name some of them."""
LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"


class Layer:
    """Files, links and directories of root's, all of one date."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._entries: dict[str, tuple[tarfile.TarInfo, bytes]] = {}

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Add a file."""
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), mode
        self._put(entry, content)

    def add_link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
        self._put(entry)

    def add_directory(self, name: str, mode: int = 0o755) -> None:
        """Add a directory."""
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        self._put(entry)

    def add_package(self, package: Path, leave_out: Callable[[str], bool]) -> None:
        """Add the files of a Debian package, and its control file where scanners of images look for it."""
        name = package.name.split("_")[0]
        self.add(f"var/lib/dpkg/status.d/{name}", debian.control(package))
        with tarfile.open(fileobj=io.BytesIO(debian.files(package))) as tar:
            for member in tar:
                path = _merged(member.name.removeprefix("./").rstrip("/"))
                if not path or leave_out(f"{path}/" if member.isdir() else path):
                    continue
                member.name = path
                if member.islnk():
                    member.linkname = _merged(member.linkname.removeprefix("./"))
                source = tar.extractfile(member) if member.isreg() else None
                self._put(member, source.read() if source else b"")
        for directory in MERGED[:5]:
            self.add_link(directory, f"usr/{directory}")

    def contents(self, prefix: str) -> Sequence[tuple[str, bytes]]:
        """Return the names and contents of the files whose names begin like this, sorted."""
        return [(name, self._entries[name][1]) for name in sorted(self._entries) if name.startswith(prefix)]

    def tar(self) -> bytes:
        """Return the layer as an archive."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
            # A hard link comes after what it is a link to.
            order = sorted(self._entries, key=lambda name: (self._entries[name][0].islnk(), name))
            for name in order:
                entry, content = self._entries[name]
                tar.addfile(entry, io.BytesIO(content))
        return out.getvalue()

    def _put(self, entry: tarfile.TarInfo, content: bytes = b"") -> None:
        for parent in [*Path(entry.name).parents][-2::-1]:
            if str(parent) not in self._entries:
                self.add_directory(str(parent))
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = self._seconds, 0, 0, "root", "root"
        # Nobody changes who he is in a container of ours.
        entry.mode &= 0o1777
        entry.pax_headers = {}
        self._entries[entry.name] = (entry, content)


def archive(layers: Sequence[Layer], architecture: str, config: Mapping[str, Any], name: str, seconds: int) -> bytes:
    """Return an image with these layers, its configuration and a name as one archive."""
    tars = [layer.tar() for layer in layers]
    packed = [gzip.compress(tar, 9, mtime=0) for tar in tars]
    blobs: dict[str, bytes] = {}

    def described(media: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

    image = {
        "architecture": architecture,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}" for tar in tars]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described(CONFIG, _json(image)),
        "layers": [described(LAYER, content) for content in packed],
    }
    entry = described(MANIFEST, _json(manifest))
    # The first name is containerd's, the second that of the specification.
    entry["annotations"] = {
        "io.containerd.image.name": _full(name),
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    entry["platform"] = {"architecture": architecture, "os": "linux"}
    whole = Layer(seconds)
    whole.add("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    whole.add("index.json", _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}))
    for digest, content in blobs.items():
        whole.add(f"blobs/sha256/{digest}", content)
    return whole.tar()


def _merged(path: str) -> str:
    first, slash, rest = path.partition("/")
    if first not in MERGED:
        return path
    return f"usr/{first}{slash}{rest}"


def _full(name: str) -> str:
    """Return a name with the registry and the folder that containerd adds to a short one."""
    first, slash, _ = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
