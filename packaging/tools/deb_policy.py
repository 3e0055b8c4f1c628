"""What Debian's policy asks of a binary package, looked for in its tree: a part of what lintian looks for.

``problems`` takes the directory that ``dpkg-deb --build`` is given, or that ``dpkg-deb --raw-extract`` makes. Each rule
is named as lintian names it where it has one. See https://www.debian.org/doc/debian-policy/.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

SCRIPTS: Final = ("preinst", "postinst", "prerm", "postrm")
FIELDS: Final = (
    "Package",
    "Version",
    "Architecture",
    "Maintainer",
    "Installed-Size",
    "Section",
    "Priority",
    "Description",
)
SYNOPSIS: Final = 80
"""Characters that the first line of a description may have, the name of the package included."""
NEVER: Final = ("usr/local", "home", "root", "tmp", "var/tmp", "var/run", "run", "var/lock", "srv", "media", "mnt")
"""Where a package has no files."""
DEBRIS: Final = re.compile(
    r"(\.pyc|\.pyo|\.orig|\.rej|\.swp|~|/__pycache__|/\.git[^/]*|/\.DS_Store|/direct_url\.json)$"
)
OWN: Final = "opt/liqod"
LIBRARIES: Final = "opt/liqod/lib/"
"""Files of other projects: their scripts are nobody's to run."""
KNOWN_INTERPRETERS: Final = ("/bin/sh",)
_PLACEHOLDER: Final = re.compile(r"@[A-Z]{3,}@")
_OVERRIDE: Final = re.compile(r"(#.*|[a-z0-9][a-z0-9+.-]+: [a-z0-9][a-z0-9+.-]+( .+)?|)")
_ENTRY: Final = re.compile(r"([a-z0-9][a-z0-9+.-]+) \((\S+)\) [a-z ]+; urgency=(low|medium|high|emergency|critical)")
_TRAILER: Final = re.compile(r" -- .+ <\S+@\S+>  (.+)")
_NAME: Final = re.compile(r"^\.SH NAME\n[\w., -]+ \\- \S", re.MULTILINE)


def problems(tree: Path) -> list[str]:
    """Return what the policy forbids in the tree of a package, one sentence each; none is good."""
    return [found for rule in RULES for found in rule(tree)]


def fields(tree: Path) -> dict[str, str]:
    """Return the fields of the control file; lines that go on keep their line feeds."""
    found: dict[str, str] = {}
    name = ""
    for line in (tree / "DEBIAN/control").read_text(encoding="utf-8").splitlines():
        if line.startswith(" ") and name:
            found[name] += f"\n{line}"
        elif ": " in line:
            name, _, value = line.partition(": ")
            found[name] = value
    return found


def files(tree: Path) -> Iterator[tuple[str, Path]]:
    """Yield everything that the package installs, with its path from the root of a system on."""
    for path in sorted(tree.rglob("*")):
        name = path.relative_to(tree).as_posix()
        if not f"{name}/".startswith("DEBIAN/"):
            yield name, path


def _control(tree: Path) -> Iterator[str]:
    found = fields(tree)
    yield from (f"required-field: {name} is missing" for name in FIELDS if not found.get(name))
    if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", found.get("Package", "")):
        yield "bad-package-name"
    if not re.fullmatch(r"[0-9][A-Za-z0-9.+~]*-[A-Za-z0-9.+~]+", found.get("Version", "")):
        yield "bad-version-number"
    if not re.fullmatch(r"[^<>]+ <[^<>@\s]+@[^<>@\s]+>", found.get("Maintainer", "")):
        yield "malformed-contact: Maintainer"
    for name, value in found.items():
        if _PLACEHOLDER.search(value):
            yield f"unsubstituted-variable: {name}"
    for needed in re.split(r"[,|]", ",".join(found.get(name, "") for name in ("Depends", "Recommends", "Suggests"))):
        if needed.strip() and not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+(:any)?( \([<>=]+ [^)]+\))?", needed.strip()):
            yield f"bad-relation: {needed.strip()}"


def _description(tree: Path) -> Iterator[str]:
    found = fields(tree)
    first, *rest = found.get("Description", "").split("\n")
    if len(f"{found.get('Package', '')} - {first}") > SYNOPSIS:
        yield "synopsis-too-long"
    if first.endswith(".") or re.match(r"(an?|the) ", first, re.IGNORECASE):
        yield "synopsis: it is no sentence and has no article"
    if not rest:
        yield "extended-description-is-empty"
    for line in rest:
        if len(line) > SYNOPSIS or "\t" in line or not line.strip():
            yield f"extended-description: {line!r} is too long, has a tab, or is empty without a dot"


def _scripts(tree: Path) -> Iterator[str]:
    for name in SCRIPTS:
        path = tree / "DEBIAN" / name
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        if not text.startswith("#!/bin/sh\n"):
            yield f"maintainer-script-without-shebang: {name}"
        if not re.search(r"^set -e$", text, re.MULTILINE):
            yield f"maintainer-script-ignores-errors: {name}"
        if _PLACEHOLDER.search(text):
            yield f"unsubstituted-variable: {name}"
        if path.stat().st_mode & 0o777 != 0o755:
            yield f"control-file-has-bad-permissions: {name}"
        if re.search(r"\[\[|^\s*function |\$'|<<<|\blocal \w+=|\bsource ", text, re.MULTILINE):
            yield f"possible-bashism-in-maintainer-script: {name}"


def _modes(tree: Path) -> Iterator[str]:
    for name, path in files(tree):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            continue
        wanted = (0o755,) if stat.S_ISDIR(mode) else (0o644, 0o755)
        if stat.S_IMODE(mode) not in wanted:
            yield f"non-standard-file-perm: {name} {stat.S_IMODE(mode):o}"


def _places(tree: Path) -> Iterator[str]:
    for name, path in files(tree):
        if any(f"{name}/".startswith(f"{never}/") for never in NEVER):
            yield f"file-in-unusual-dir: {name}"
        if DEBRIS.search(f"/{name}"):
            yield f"package-contains-debris: {name}"
        if path.is_symlink() and not path.readlink().is_absolute() and not (path.parent / path.readlink()).exists():
            yield f"package-contains-broken-symlink: {name}"


def _programs(tree: Path) -> Iterator[str]:
    for name, path in files(tree):
        if path.is_symlink() or not path.is_file() or name.startswith(LIBRARIES):
            continue
        with path.open("rb") as file:
            begin = file.readline(200)
        if begin.startswith(b"#!") and path.stat().st_mode & 0o100:
            interpreter = begin[2:].split()[0].decode()
            # A link to the distribution's interpreter leads out of the tree.
            inside = tree / interpreter.lstrip("/")
            if interpreter not in KNOWN_INTERPRETERS and not (inside.exists() or inside.is_symlink()):
                yield f"unknown-interpreter: {name} {interpreter}"
        elif begin.startswith(b"#!") != bool(path.stat().st_mode & 0o100):
            yield f"script-not-executable: {name}" if begin.startswith(b"#!") else f"executable-not-a-script: {name}"


def _manuals(tree: Path) -> Iterator[str]:
    pages = {path.name.removesuffix(".gz"): path for path in (tree / "usr/share/man").rglob("*.gz")}
    for program in (tree / "usr/bin").iterdir():
        if f"{program.name}.1" not in pages:
            yield f"no-manual-page: {program.name}"
    for name, path in pages.items():
        if path.parent.name != f"man{name.rpartition('.')[2]}":
            yield f"manual-page-in-wrong-section: {name}"
        text = gzip.decompress(path.read_bytes()).decode("utf-8")
        if text.startswith(".so "):
            if Path(text.split()[1]).name not in pages:
                yield f"bad-so-link-within-manual-page: {name}"
        elif not text.startswith(".TH ") or not _NAME.search(text):
            yield f"bad-whatis-entry: {name}"


def _documents(tree: Path) -> Iterator[str]:
    package = fields(tree).get("Package", "")
    place = tree / "usr/share/doc" / package
    license_ = place / "copyright"
    if not license_.exists() or not license_.read_text(encoding="utf-8").startswith("Format: https://www.debian.org/"):
        yield "no-copyright-file: or it is not machine-readable"
    changes = place / "changelog.Debian.gz"
    if not changes.exists():
        yield "no-changelog"
        return
    raw = changes.read_bytes()
    if raw[4:8] != b"\0\0\0\0":
        yield "package-contains-timestamped-gzip: changelog.Debian.gz"
    first, *rest = gzip.decompress(raw).decode("utf-8").splitlines()
    entry = _ENTRY.fullmatch(first)
    if entry is None or (entry[1], entry[2]) != (package, fields(tree).get("Version")):
        yield f"syntax-error-in-debian-changelog: {first}"
    trailers = [found for line in rest if (found := _TRAILER.fullmatch(line))]
    if not trailers:
        yield "syntax-error-in-debian-changelog: nobody signed it"
    for trailer in trailers:
        try:
            parsedate_to_datetime(trailer[1])
        except ValueError:
            yield f"bad-date-in-debian-changelog: {trailer[1]}"


def _lists(tree: Path) -> Iterator[str]:
    kept = (tree / "DEBIAN/conffiles").read_text(encoding="utf-8").split()
    there = {f"/{name}" for name, path in files(tree) if name.startswith("etc/") and path.is_file()}
    yield from (f"file-in-etc-not-marked-as-conffile: {name}" for name in sorted(there - {*kept}))
    yield from (f"conffile-is-not-in-package: {name}" for name in sorted({*kept} - there))
    lines = (tree / "DEBIAN/md5sums").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    plain = {name: path for name, path in files(tree) if path.is_file() and not path.is_symlink()}
    wanted = {name for name in plain if not name.startswith("etc/")}
    yield from (f"file-missing-in-md5sums: {name}" for name in sorted(wanted - sums.keys()))
    yield from (f"md5sums-lists-nonexistent-file: {name}" for name in sorted(sums.keys() - wanted))
    for name in sorted(wanted & sums.keys()):
        if hashlib.md5(plain[name].read_bytes(), usedforsecurity=False).hexdigest() != sums[name]:
            yield f"md5sum-mismatch: {name}"


def _overrides(tree: Path) -> Iterator[str]:
    for path in (tree / "usr/share/lintian/overrides").glob("*"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if not _OVERRIDE.fullmatch(line):
                yield f"malformed-override: {line}"


def _units(tree: Path) -> Iterator[str]:
    known = (tree / "usr/lib/sysusers.d").glob("*.conf")
    users = {word for path in known for word in re.findall(r"^u!?\s+(\S+)", path.read_text(), re.MULTILINE)}
    for path in (tree / "lib/systemd/system").glob("*.service"):
        text = path.read_text(encoding="utf-8")
        if not re.search(r"^Description=\S", text, re.MULTILINE):
            yield f"systemd-service-file-missing-description: {path.name}"
        for program in re.findall(r"^Exec\w+=[-@+!:]*(/\S+)", text, re.MULTILINE):
            if program.startswith(f"/{OWN}/") and not (tree / program.lstrip("/")).exists():
                yield f"systemd-service-file-refers-to-missing-program: {path.name} {program}"
        for user in re.findall(r"^User=(\S+)", text, re.MULTILINE):
            if user not in users:
                yield f"systemd-service-file-refers-to-unknown-user: {path.name} {user}"


RULES: Final[Sequence[Callable[[Path], Iterator[str]]]] = (
    _control,
    _description,
    _scripts,
    _modes,
    _places,
    _programs,
    _manuals,
    _documents,
    _lists,
    _overrides,
    _units,
)
