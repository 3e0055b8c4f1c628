"""``make image``: the container image, as an archive in the layout of OCI; no engine and no root needed.

The lower layer is made of files of Debian packages, without a shell or a package manager; the upper one is liqod with
the versions of ``requirements.lock``. Nothing of it runs while it is built, so an image for another architecture is
built the same way. The same commit gives the same bytes as long as the distribution's packages are the same.
Load it with ``ctr images import``, ``podman load``, ``docker load`` or ``skopeo copy oci-archive:``.

Sources: https://github.com/opencontainers/image-spec (image-layout.md, config.md, layer.md).
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Final

import debian
from layers import Layer, archive
from project import CHECKOUT, DIST, LOCK, PROGRAMS, epoch, link, revision, run, sources, version

NAME: Final = "liqod"
OPT: Final = "opt/liqod"
INTERPRETER: Final = "python3.11"
"""What Debian 12, which the image is made of, has; the lock file is for this version, too."""
SCRATCH: Final = "/tmp"  # noqa: S108 (a directory of the image, which a pod mounts)
ENVIRONMENT: Final = ("PYTHONDONTWRITEBYTECODE=1", "LANG=C.UTF-8")
USER: Final = "65532:65532"
"""An account without rights: a pod that needs more says so (runAsUser, capabilities)."""
PLATFORMS: Final = {
    "amd64": ("manylinux2014_x86_64", "manylinux_2_28_x86_64", "manylinux_2_34_x86_64"),
    "arm64": ("manylinux2014_aarch64", "manylinux_2_28_aarch64", "manylinux_2_34_aarch64"),
}
"""For each architecture, in Debian's words, which wheels run on it; Debian 12 has glibc 2.36."""
DOCUMENTATION: Final = (
    "usr/share/man/",
    "usr/share/locale/",
    "usr/share/info/",
    "usr/share/lintian/",
    "usr/share/bash-completion/",
    "usr/share/doc-base/",
    "usr/lib/systemd/",
)
UNUSED: Final = ("test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3", "pydoc_data", "turtledemo")


def main() -> None:
    """Build the image and print its path, its size and its digest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=DIST, help="the directory for the archive")
    parser.add_argument("--arch", choices=sorted(PLATFORMS), default=debian.architecture(), help="the processor")
    parser.add_argument("--tag", default="", help="the name that the archive gives the image [liqod:VERSION]")
    arguments = parser.parse_args()
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        layers = [system(Path(scratch), arguments.arch), program(Path(scratch), arguments.arch)]
        config = {
            "User": USER,
            "Env": [
                f"PATH=/{OPT}/bin:/usr/sbin:/usr/bin",
                f"HOME={SCRATCH}",
                "PYTHONDONTWRITEBYTECODE=1",
                "LANG=C.UTF-8",
            ],
            "Entrypoint": [f"/{OPT}/bin/twistd", "-n", "liqod"],
            "WorkingDir": SCRATCH,
            "Labels": labels(),
        }
        content = archive(layers, arguments.arch, config, arguments.tag or f"{NAME}:{version()}", int(epoch()))
    path = output / f"{NAME}-{version()}-{arguments.arch}.oci.tar"
    path.write_bytes(content)
    print(f"{hashlib.sha256(content).hexdigest()}  {path}  {len(content) / 2**20:.1f} MiB")


def labels() -> dict[str, str]:
    """Return what the image says about itself, in the words of annotations.md of the specification."""
    said = {"title": NAME, "version": version(), "licenses": "Apache-2.0"}
    said |= {"source": link("Source"), "documentation": link("Documentation"), "revision": revision()}
    return {f"org.opencontainers.image.{name}": value for name, value in said.items()}


def system(scratch: Path, architecture: str) -> Layer:
    """Return the layer of Debian's files: the interpreter, certificates, and the programs of the network agent."""
    layer = Layer(int(epoch()))
    for package in debian.download(scratch / "debian", architecture):
        layer.add_package(package, leave_out=_unused)
    # What the packages' scripts would make.
    layer.add("etc/passwd", b"root:x:0:0:root:/root:/sbin/nologin\nliqod:x:65532:65532:liqod:/tmp:/sbin/nologin\n")
    layer.add("etc/group", b"root:x:0:\nliqod:x:65532:\n")
    layer.add("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    roots = layer.contents("usr/share/ca-certificates/mozilla/")
    layer.add("etc/ssl/certs/ca-certificates.crt", b"".join(content for _, content in roots))
    layer.add_directory("tmp", 0o1777)
    for empty in ("proc", "sys", "dev", "run", "root", "var/lib/liqod", "etc/liqod"):
        layer.add_directory(empty)
    return layer


def program(scratch: Path, architecture: str) -> Layer:
    """Return the layer of liqod and what it imports."""
    platforms = [word for name in PLATFORMS[architecture] for word in ("--platform", name)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--no-deps", "--no-compile", "--python-version", "3.11"]
    install += ["--implementation", "cp", "--only-binary=:all:", *platforms]
    run(*install, "--target", str(scratch / "others"), "--require-hashes", "--requirement", str(LOCK))
    tree = sources(scratch / "sources")
    run(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(scratch), str(tree))
    (wheel,) = scratch.glob("liqod-*.whl")
    # A directory of its own: pip replaces no directory of an earlier installation, and liqod adds to twisted/plugins.
    run(*install, "--target", str(scratch / "own"), str(wheel))
    layer = Layer(int(epoch()))
    layer.add_directory(OPT)
    for site in (scratch / "others", scratch / "own"):
        for path in sorted(site.rglob("*")):
            inside = path.relative_to(site)
            if path.is_file() and not _unused_wheel(inside):
                layer.add(f"{OPT}/lib/{INTERPRETER}/site-packages/{inside}", path.read_bytes())
    layer.add(f"{OPT}/pyvenv.cfg", b"home = /usr/bin\ninclude-system-site-packages = false\n")
    for alias in ("python3", "python"):
        layer.add_link(f"{OPT}/bin/{alias}", f"/usr/bin/{INTERPRETER}")
    for name, code in PROGRAMS.items():
        layer.add(f"{OPT}/bin/{name}", f"#!/{OPT}/bin/python3 -PE\n{code}\n".encode(), 0o755)
    layer.add("etc/liqod/liqod.toml", (CHECKOUT / "etc/liqod.toml").read_bytes())
    return layer


def _unused(name: str) -> bool:
    parts = Path(name).parts
    if name.startswith("usr/share/doc/"):
        # Licenses ask that they go along.
        return not name.endswith(("/copyright", "/"))
    if parts[:2] == ("usr", "lib") and len(parts) > 3 and parts[2] == INTERPRETER:
        return parts[3] in UNUSED
    return name.startswith(DOCUMENTATION)


def _unused_wheel(name: Path) -> bool:
    if name.parts[0] == "bin" or name.suffix == ".pyc":
        return True
    if name.parts[0].endswith(".dist-info"):
        return name.name in ("direct_url.json", "RECORD", "REQUESTED")
    return name.parts[0] in ("twisted", "zope", "automat", "constantly") and bool({"test", "tests"} & {*name.parts})


if __name__ == "__main__":
    main()
