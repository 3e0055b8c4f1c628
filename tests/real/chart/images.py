"""The image and the chart of this checkout, and of a next release that is the same but for its number."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[3]
KEPT: Final = CHECKOUT / ".cache" / "chart"
"""What outlives a run: images, figures, lists of what was there."""
VERSION: Final = "0.1.0"
NEXT: Final = "0.1.1"
NOT_IN_IT: Final = ("tests", "benchmarks", "docs", "changes")
"""The folders that nothing in an image is made of."""
NUMBERED: Final = ("setup.cfg", "packaging/chart/Chart.yaml")
"""The files that have the number of the release."""


def chart(version: str, folder: Path) -> Path:
    """Return the chart of a release: that of this checkout, or a copy with another number in a folder."""
    if version == VERSION:
        return CHECKOUT / "packaging/chart"
    return _copied(version, folder) / "packaging/chart"


def image(version: str = VERSION) -> Path:
    """Return the archive of a release's image; one that was made of the same files before is taken again."""
    KEPT.mkdir(parents=True, exist_ok=True)
    name = f"image-{version}-{_digest()}.oci.tar"
    with (KEPT / "image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (KEPT / name).exists():
            for old in KEPT.glob(f"image-{version}-*.oci.tar"):
                old.unlink()
            with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
                _build(version, Path(scratch)).replace(KEPT / name)
    return KEPT / name


def _build(version: str, scratch: Path) -> Path:
    tree = CHECKOUT if version == VERSION else _copied(version, scratch)
    words = [sys.executable, str(tree / "packaging/tools/image.py"), "--output", str(scratch / "out")]
    environment = os.environ | {"PYTHONPATH": str(tree), "SOURCE_DATE_EPOCH": "1767225600"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = (scratch / "out").glob("*.oci.tar")
    return archive


def _copied(version: str, folder: Path) -> Path:
    """Return a copy of what a release is made of, in which it has another number."""
    tree = folder / f"liqod-{version}"
    if tree.exists():
        return tree
    for name in _files():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CHECKOUT / name, tree / name)
    for name in NUMBERED:
        text = (tree / name).read_text()
        assert VERSION in text, f"{name} has no {VERSION}"
        (tree / name).write_text(text.replace(VERSION, version))
    # The tools take what git knows, and say of which commit it is.
    author = ("-c", "user.name=tests", "-c", "user.email=tests@localhost", "-c", "commit.gpgSign=false")
    for words in (("init", "--quiet"), ("add", "--all"), (*author, "commit", "--quiet", "--message", version)):
        subprocess.run(["git", "-C", str(tree), *words], check=True)
    return tree


def _files() -> list[str]:
    words = ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "."]
    words += [f":(exclude){folder}" for folder in NOT_IN_IT]
    found = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return [name for name in found.split("\0") if name and (CHECKOUT / name).is_file()]


def _digest() -> str:
    whole = hashlib.sha256()
    for name in sorted(_files()):
        if not name.endswith(".md"):
            whole.update(name.encode() + b"\0" + hashlib.sha256((CHECKOUT / name).read_bytes()).digest())
    return whole.hexdigest()[:12]
