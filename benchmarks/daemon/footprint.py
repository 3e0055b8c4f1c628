"""How large liqod is in each form that it is installed in, how soon it is ready, and what it takes at rest.

    python -m benchmarks footprint [--form host ...] [--repeat 3] [--rest 60] [--place DIR] [--json FILE]

``host``: an environment made of the locked wheels, as README's "From source" makes it; ``package``: the Debian package,
taken apart beside this machine's own files; ``image``: the container image's layers, as the root of a process. Each
runs a daemon without peers on one real control plane that has no node. ``pods``: the chart on a real node, with
tunnels and names: each of its processes. Needs root, and where packages and images are made Debian's tools and a
network; for the chart helm, which is built.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from benchmarks.daemon.footprint_pods import IMAGE, measure_pods
from benchmarks.figures.measure import memory, spent, table
from benchmarks.figures.report import save_figures
from tests.real.daemons import Daemon
from tests.real.path import eventually
from tests.runner.steps import CHECKOUT
from tests.testbed import build, system
from tests.testbed.cluster import Cluster
from tests.testbed.process import Process
from tests.testbed.testbed import Testbed

MIB: Final = 1 << 20
TOOLS: Final = CHECKOUT / "packaging" / "tools"
LOCK: Final = CHECKOUT / "packaging" / "requirements.lock"
READY: Final = "liqod is ready"
SIZES: Final = ("download, MiB", "installed, MiB", "files")
"""What is counted of each form; pods are those of the image."""
FIGURES: Final = ("ready, s", "CPU till then, s", "memory, MiB", "own memory, MiB", "CPU, %")
"""What is measured of each process: how soon it is ready, and what that takes of a processor, which a busy machine does
not change; memory and CPU at rest, and what of the memory no other process has as well.
"""
PODS: Final = "pods"


@frozen
class Form:
    """One form: the bytes to fetch, the directory with what is installed, and the words that run its twistd.

    ``root``: the directory that is the whole system for it; None: it runs among this machine's files.
    """

    name: str
    download: int
    place: Path
    program: Sequence[str]
    root: Path | None = None


def installed(directory: Path) -> tuple[int, int]:
    """Return the bytes and the number of the files below a directory; links count as files of no size."""
    files = [path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir()]
    return sum(0 if path.is_symlink() else path.stat().st_size for path in files), len(files)


# Our own image, whose links to absolute paths the filter for strangers' archives refuses. Filters are newer than the
# Python of Debian 12 (tarfile, "Extraction filters": 3.11.4), which trusts each archive.
_OURS: Final[Mapping[str, Any]] = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}


def unpack(archive: Path, root: Path) -> None:
    """Lay the layers of an image, an archive in the layout of OCI, over each other in a directory."""
    with tarfile.open(archive) as tar:

        def blob(described: Mapping[str, Any]) -> bytes:
            file = tar.extractfile(f"blobs/sha256/{described['digest'].removeprefix('sha256:')}")
            assert file is not None
            return file.read()

        index = tar.extractfile("index.json")
        assert index is not None
        manifest = json.loads(blob(json.load(index)["manifests"][0]))
        root.mkdir(parents=True)
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(layer)))) as files:
                files.extractall(root, **_OURS)


def rows(found: Mapping[str, Mapping[str, Sequence[float]]], columns: Sequence[str]) -> list[list[object]]:
    """Return a row for each form, or process, that has such figures, with the median of each. Pure."""
    return [
        [form, *(statistics.median(figures[what]) for what in columns)]
        for form, figures in found.items()
        if all(figures.get(what) for what in columns)
    ]


def _is_made(place: Path) -> bool:
    return place.with_name(f"{place.name}.made").exists()


def _note_made(place: Path) -> None:
    """Note that a form is made to its end: one that was interrupted is not taken for a whole one."""
    place.with_name(f"{place.name}.made").touch()


def on_host(scratch: Path) -> Form:
    """Make an environment of the locked wheels and of liqod's."""
    sys.path.insert(0, str(TOOLS))
    from project import sources

    wheels, place = scratch / "wheels", scratch / "host"
    python = place / "bin" / "python"
    form = partial(Form, "host", place=place, program=[str(python), "-E", str(place / "bin" / "twistd")])
    if _is_made(place):
        return form(download=installed(wheels)[0])
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    _run(*pip, "download", "--quiet", "--no-deps", "--require-hashes", f"--requirement={LOCK}", f"--dest={wheels}")
    tree = sources(scratch / "sources")
    _run(*pip, "wheel", "--quiet", "--no-deps", f"--wheel-dir={wheels}", str(tree))
    _run(sys.executable, "-m", "venv", "--without-pip", str(place))
    files = [str(file) for file in wheels.iterdir()]
    _run(*pip, f"--python={python}", "install", "--quiet", "--no-deps", "--no-index", *files)
    _note_made(place)
    return form(download=installed(wheels)[0])


def of_package(scratch: Path) -> Form:
    """Build the package, take it apart, and compile it as its script does."""
    built, place = scratch / "deb", scratch / "package"
    opt = place / "opt" / "liqod"
    python = str(opt / "bin" / "python3")
    if not _is_made(place):
        _run(sys.executable, str(TOOLS / "deb.py"), f"--output={built}")
        _run("dpkg-deb", "--extract", *map(str, built.glob("*.deb")), str(place))
        _run(python, "-PE", "-m", "compileall", "-q", str(opt / "lib"))
        _note_made(place)
    (package,) = built.glob("*.deb")
    return Form("package", package.stat().st_size, place, [python, "-PE", str(opt / "lib" / "liqod" / "twistd")])


def archive_of(scratch: Path) -> Path:
    """Return the archive of the image, which is built the first time."""
    built = scratch / "oci"
    if not _is_made(built):
        _run(sys.executable, str(TOOLS / "image.py"), f"--output={built}", f"--tag={IMAGE}")
        _note_made(built)
    (archive,) = built.glob("*.oci.tar")
    return archive


def of_image(scratch: Path) -> Form:
    """Build the image and unpack it."""
    root = scratch / "image"
    archive = archive_of(scratch)
    if not _is_made(root):
        unpack(archive, root)
        _note_made(root)
    return Form("image", archive.stat().st_size, root, ["/opt/liqod/bin/twistd"], root)


FORMS: Final = {"host": on_host, "package": of_package, "image": of_image}


class FormDaemon(Daemon):
    """A daemon that a form's program runs, where that is the whole system with nothing of this machine's but /dev."""

    form: Form

    def run_form(self) -> None:
        """Start the daemon; the cluster is prepared for it already."""
        words = ["--nodaemon", "--pidfile=", "--reactor=asyncio", f"--rundir={self.directory}"]
        words += ["liqod", f"--config={self.config}"]
        argv = [*self.form.program, *words]
        if (root := self.form.root) is not None:
            here = f"{root}{self.directory}"
            # Read-only, as pods have it: what one start has compiled must not be there for the next one.
            script = (
                f"mount --bind {root} {root} && mount -t tmpfs tmpfs {root}/tmp"
                f" && mkdir -p {here} && mount --bind {self.directory} {here}"
                f" && mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev"
                f" && mount -o remount,bind,ro {root}"
                f' && exec chroot {root} "$@"'
            )
            # Each program becomes the next one, so that the process is the daemon at last; the mounts end with it.
            argv = ["unshare", "--mount", "--", "sh", "-c", script, "sh", *argv]
        self.process = self.cluster.spawn(f"liqod-{self.identity}", ["env", "PYTHONDONTWRITEBYTECODE=1", *argv])


def measure(daemon: FormDaemon, rest: float) -> dict[str, float]:
    """Start a daemon, wait until it is ready, let it rest, and stop it; return the figures of that."""
    said = daemon.log.read_text().count(READY) if daemon.log.exists() else 0
    begin = time.monotonic()
    daemon.run_form()
    process = daemon.process
    assert isinstance(process, Process)
    try:
        eventually("it is ready", lambda: daemon.log.read_text().count(READY) > said, 120, 0.02)
        ready, cpu = time.monotonic() - begin, spent(process.pid).cpu
        time.sleep(rest / 2)
        before = spent(process.pid).cpu
        time.sleep(rest / 2)
        busy = 200 * (spent(process.pid).cpu - before) / rest
        proc = Path("/proc") / str(process.pid)
        resident, own = memory((proc / "status").read_text(), (proc / "smaps_rollup").read_text())
    finally:
        daemon.stop()
    taken = {"ready, s": ready, "CPU till then, s": cpu}
    return {**taken, "memory, MiB": resident, "own memory, MiB": own, "CPU, %": busy}


def _run(*words: str) -> None:
    # A wheel is made of what is there, and not of what PYTHONPATH says is installed.
    path = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    tools = {"PYTHONPATH": str(CHECKOUT)} if words[1].startswith(str(TOOLS)) else {}
    done = subprocess.run(words, env=path | tools, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words[:6])}: {done.stdout}{done.stderr}")


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", action="append", choices=[*sorted(FORMS), PODS], help="one of the forms, not all")
    parser.add_argument("--repeat", type=int, default=3, help="how often each is started; 0 for the sizes alone")
    parser.add_argument("--place", type=Path, help="where forms are made, and kept for the next run")
    parser.add_argument("--rest", type=float, default=60.0, help="seconds that a daemon is left alone for")
    parser.add_argument("--json", type=Path, help="where the figures go (benchmarks/results/)")
    args = parser.parse_args()
    system.require()
    build.ensure()
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="liqod-footprint-") as scratch:
        place = args.place or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        wanted = args.form or [*FORMS, PODS]
        forms = [FORMS[name](place) for name in wanted if name != PODS]
        found |= {form.name: sizes_of(form) for form in forms}
        if forms and args.repeat:
            with Testbed(1, nodes=False) as testbed:
                for form in forms:
                    found[form.name] |= of_daemon(form, testbed[1], args.repeat, args.rest)
        if PODS in wanted and args.repeat:
            found |= measure_pods(archive_of(place), args.repeat, args.rest)
    print(table(("form", *SIZES), rows(found, SIZES)), table(("process", *FIGURES), rows(found, FIGURES)), sep="\n\n")
    named = {f"{form}: {what}": values for form, figures in found.items() for what, values in figures.items()}
    print("figures:", save_figures("footprint", named, args.json, rest=args.rest))


def sizes_of(form: Form) -> dict[str, list[float]]:
    """Return the sizes of a form, each as the one value that there is."""
    size, count = installed(form.place)
    return {what: [value] for what, value in zip(SIZES, (form.download / MIB, size / MIB, float(count)), strict=True)}


def of_daemon(form: Form, cluster: Cluster, repeat: int, rest: float) -> dict[str, list[float]]:
    """Return the figures of a form's daemon, started several times over."""
    figures: dict[str, list[float]] = {}
    daemon = FormDaemon(cluster, "rome", identity=form.name)
    daemon.form = form
    daemon.install()
    for number in range(repeat):
        for what, value in measure(daemon, rest).items():
            figures.setdefault(what, []).append(value)
        print(f"{form.name} {number + 1}: ready after {figures['ready, s'][-1]:.2f} s", flush=True)
    return figures


if __name__ == "__main__":
    main()
