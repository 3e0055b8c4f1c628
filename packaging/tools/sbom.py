"""``make sbom``: what is installed with liqod, as CycloneDX 1.6: versions, licences, digests, and what needs what.

See https://cyclonedx.org/docs/1.6/json/. The tool that reads an installation is cyclonedx-bom; here its answer is given
liqod as the subject, and made the same for the same lock on any machine.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from project import DIST, LOCK, epoch, run, sources, version

NAME: Final = "liqod"
TOOL: Final = "cyclonedx-bom>=7,<8"
_DIGEST: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_LOCKED: Final = re.compile(r"([a-z0-9-]+)==(\S+)")


def main() -> None:
    """Write the file, and show its path."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DIST, help="the directory for the file; default: dist")
    target = build(parser.parse_args().out)
    print(target)


def build(directory: Path) -> Path:
    """Install what is locked, and liqod, into an empty environment; write what is in it; return the file."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        installed, tools, found = Path(place, "installed"), Path(place, "tools"), Path(place, "found.json")
        run("python3", "-m", "venv", str(tools))
        run("python3", "-m", "venv", "--without-pip", str(installed))
        pip = (str(tools / "bin" / "pip"), "--quiet", "--disable-pip-version-check")
        into = (*pip, "--python", str(installed / "bin" / "python"), "install")
        run(*pip, "install", TOOL)
        run(*into, "--require-hashes", "--no-deps", "-r", str(LOCK))
        run(*into, "--no-deps", str(sources(Path(place, "sources"))))
        options = ("--output-reproducible", "--spec-version", "1.6", "--of", "JSON", "-o", str(found))
        run(str(tools / "bin" / "cyclonedx-py"), "environment", *options, str(installed / "bin" / "python"))
        bom = about_liqod(json.loads(found.read_bytes()), digests(LOCK.read_text(encoding="utf-8")), _built())
    target = directory / f"{NAME}-{version()}.cdx.json"
    target.write_text(json.dumps(bom, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return target


def digests(lock: str) -> dict[str, list[str]]:
    """Return the SHA-256 digests by package, from the text of the lock; a package has one for each platform's file."""
    found = {}
    for entry in re.split(r"\n(?=\S)", lock.strip()):
        name = _LOCKED.match(entry)
        if name is None:
            raise ValueError(f"not a locked package: {entry[:80]!r}")
        found[name[1]] = _DIGEST.findall(entry)
    return found


def about_liqod(bom: dict[str, Any], known: dict[str, list[str]], built: str) -> dict[str, Any]:
    """Return the bill of materials with liqod as its subject, the digests that pip checks, and a date. Pure.

    Raises ValueError when something is installed that is not locked. What names the place of the installation is left
    out.
    """
    subject, parts = None, []
    for component in bom["components"]:
        component = {key: value for key, value in component.items() if key != "externalReferences"}
        if component["name"] == NAME:
            subject = component | {"type": "application"}
            continue
        name = re.sub(r"[-_.]+", "-", component["name"]).lower()
        if name not in known:
            raise ValueError(f"{component['name']} is installed with liqod, and is not in {LOCK.name}: make lock")
        # A component's own hashes are those of one file; which of a version's files is installed, the platform decides.
        files = [{"alg": "SHA-256", "content": digest} for digest in known[name]]
        # Where it is fetched from is the choice of who installs: the reference is the package's name (purl).
        source = {"type": "distribution", "url": component["purl"], "hashes": files}
        parts.append(component | {"externalReferences": [source]})
    if subject is None:
        raise ValueError(f"{NAME} is not installed")
    return bom | {"metadata": bom["metadata"] | {"component": subject, "timestamp": built}, "components": parts}


def _built() -> str:
    return datetime.fromtimestamp(int(epoch()), UTC).isoformat()


if __name__ == "__main__":
    main()
