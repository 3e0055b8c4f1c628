"""``make deb``: the Debian package, for the release of the distribution that it is built on.

The package has its own Python environment in /opt/liqod, with the versions of ``requirements.lock`` and with the
distribution's interpreter. The same commit gives the same bytes on the same release.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import manual
from click.shell_completion import BashComplete, FishComplete, ZshComplete
from project import CHECKOUT, DIST, LOCK, PROGRAMS, run, settle, sources, version

TEMPLATES: Final = CHECKOUT / "packaging" / "deb"
INTERPRETER: Final = Path("/usr/bin/python3")
OPT: Final = "opt/liqod"
COMPLETIONS: Final = {
    "usr/share/bash-completion/completions/liqodctl": BashComplete,
    "usr/share/zsh/vendor-completions/_liqodctl": ZshComplete,
    "usr/share/fish/vendor_completions.d/liqodctl.fish": FishComplete,
}


def main() -> None:
    """Build the package and print its path."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=DIST, help="the directory for the package")
    parser.add_argument(
        "--release", default=version(), metavar="VERSION", help="the version, where it is not that of this checkout"
    )
    parser.add_argument("--compression", default="xz", choices=("xz", "gzip"), help="xz takes a minute of a processor")
    given = parser.parse_args()
    output: Path = given.output
    release: str = given.release
    if shutil.which("dpkg-deb") is None or not INTERPRETER.exists():
        sys.exit("a Debian package is built on Debian, with dpkg-deb and the distribution's python3")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        stage = Path(scratch) / "stage"
        interpreter = _environment(stage, Path(scratch), release)
        files(stage, interpreter, release)
        control(stage, interpreter, release)
        settle(stage)
        name = f"liqod_{release}-1_{_architecture()}.deb"
        run("dpkg-deb", "--root-owner-group", "--build", f"-Z{given.compression}", str(stage), str(output / name))
    print(output / name)


def _environment(stage: Path, scratch: Path, release: str) -> str:
    """Make the environment; returns the name of its interpreter, such as python3.11."""
    place = stage / OPT
    interpreter = Path(INTERPRETER).resolve().name
    site = place / "lib" / interpreter / "site-packages"
    site.mkdir(parents=True)
    (place / "bin").mkdir()
    for name in ("python3", "python"):
        (place / "bin" / name).symlink_to(f"/usr/bin/{interpreter}")
    # What `python3 -m venv` writes, without pip and without the scripts to activate it.
    python = subprocess.run([INTERPRETER, "-V"], check=True, capture_output=True, text=True).stdout.split()[1]
    (place / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n", encoding="ascii"
    )
    pip = [sys.executable, "-m", "pip", f"--python={place / 'bin' / 'python3'}", "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--no-deps", "--no-compile", "--no-warn-script-location"]
    run(*install, "--only-binary=:all:", "--require-hashes", "--requirement", str(LOCK))
    tree = sources(scratch / "sources")
    described = tree / "setup.cfg"
    described.write_text(described.read_text().replace(f"version = {version()}\n", f"version = {release}\n"))
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(scratch), str(tree))
    (wheel,) = scratch.glob("liqod-*.whl")
    run(*install, str(wheel))
    _trim(place, site, interpreter)
    return interpreter


def _trim(place: Path, site: Path, interpreter: str) -> None:
    """Leave out what names the place of the build, tests of other projects, and programs that are not ours."""
    for program in (place / "bin").iterdir():
        if not program.name.startswith("python"):
            program.unlink()
    for name, code in PROGRAMS.items():
        # -P: the working directory is no place to import from, and -E: nor is what the environment names.
        (place / "bin" / name).write_text(f"#!/{OPT}/bin/python3 -PE\n{code}\n", encoding="ascii")
        (place / "bin" / name).chmod(0o755)
    # The units run this one themselves: where its interpreter is gone systemd would say nothing but 203/EXEC.
    daemon = place / "bin" / "twistd"
    _write(place / "lib" / "liqod" / "twistd", daemon.read_text().partition("\n")[2])
    _write(daemon, _program(interpreter), mode=0o755)
    for pattern in ("*.dist-info/direct_url.json", "*.dist-info/RECORD", "*.dist-info/REQUESTED"):
        for file in site.glob(pattern):
            file.unlink()
    for repository in site.rglob(".git*"):
        repository.unlink()
    for tests in [*site.rglob("test"), *site.rglob("tests")]:
        if tests.is_dir() and tests.relative_to(site).parts[0] in ("twisted", "zope", "automat", "constantly"):
            shutil.rmtree(tests)
    for other in ("include", "share", "lib64"):
        if (place / other).is_dir() and not (place / other).is_symlink():
            shutil.rmtree(place / other)


def _program(interpreter: str) -> str:
    return (TEMPLATES / "program").read_text().replace("@INTERPRETER@", interpreter)


def files(stage: Path, interpreter: str, release: str = "") -> None:
    """Write what the package installs beside its environment."""
    from liqod.cli.main import cli

    systemd = CHECKOUT / "systemd"
    for unit in systemd.glob("*.service"):
        _copy(unit, stage / "lib/systemd/system" / unit.name)
    # Debian enables whatever has no preset when a machine boots for the first time, as one made from an image does.
    _write(stage / "usr/lib/systemd/system-preset/80-liqod.preset", "disable liqod*.service\n")
    _copy(systemd / "liqod.sysusers", stage / "usr/lib/sysusers.d/liqod.conf")
    _copy(systemd / "liqod-tunnel.rules", stage / "usr/share/polkit-1/rules.d/liqod-tunnel.rules")
    _copy(CHECKOUT / "etc/liqod.toml", stage / "etc/liqod/liqod.toml")
    for path, shell in COMPLETIONS.items():
        _write(stage / path, f"{shell(cli, {}, 'liqodctl', '_LIQODCTL_COMPLETE').source()}\n")
    for name in ("liqodctl", "kubectl-liqod"):
        _write(stage / "usr/bin" / name, _program(interpreter), mode=0o755)
    manual.write(cli, stage / "usr/share/man")
    documents = stage / "usr/share/doc/liqod"
    _copy(systemd / "liqod-no-network.conf", documents / "examples/liqod-no-network.conf")
    _copy(TEMPLATES / "copyright", documents / "copyright")
    run("gzip", "-9n", str(_write(documents / "changelog.Debian", _changelog(release or version()))))
    _copy(TEMPLATES / "lintian-overrides", stage / "usr/share/lintian/overrides/liqod")


def _changelog(release: str) -> str:
    from email.utils import format_datetime

    return (
        f"liqod ({release}-1) stable; urgency=medium\n\n  * See CHANGELOG.md of the project.\n\n"
        f" -- The liqod authors <liqod@example.invalid>  {format_datetime(manual.built())}\n"
    )


def control(stage: Path, interpreter: str, release: str = "") -> None:
    """Write what dpkg reads of the package; everything that is installed is there already."""
    release = release or version()
    units = " ".join(sorted(unit.name for unit in (CHECKOUT / "systemd").glob("*.service") if "@" not in unit.name))
    size = sum(file.stat().st_size for file in stage.rglob("*") if file.is_file() and not file.is_symlink()) // 1024
    values = {
        "VERSION": f"{release}-1",
        "ARCHITECTURE": _architecture(),
        "SIZE": str(size),
        "PYTHON": interpreter,
        "UNITS": units,
        "UNKNOWN": unknown(release),
    }
    for name in ("control", "preinst", "postinst", "prerm", "postrm"):
        text = (TEMPLATES / name).read_text()
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        _write(stage / "DEBIAN" / name, text, mode=0o644 if name == "control" else 0o755)
    _write(stage / "DEBIAN/conffiles", "/etc/liqod/liqod.toml\n")
    sums = [
        f"{hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()}  {file.relative_to(stage)}\n"
        for file in sorted(stage.rglob("*"))
        if file.is_file() and not file.is_symlink() and file.relative_to(stage).parts[0] not in ("DEBIAN", "etc")
    ]
    _write(stage / "DEBIAN/md5sums", "".join(sums))


def unknown(release: str) -> str:
    """Return the first release whose records a release does not know; a tilde sorts before all, as dpkg compares."""
    major, minor, *_ = release.split(".")
    return f"{major}.{int(minor) + 2}~"


def _architecture() -> str:
    words = ["dpkg", "--print-architecture"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _write(target: Path, text: str, mode: int = 0o644) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    target.chmod(mode)
    return target


if __name__ == "__main__":
    main()
