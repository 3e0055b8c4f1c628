"""``make release``: checks what a release needs, and shows its steps; it changes and publishes nothing."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import dist
import sign
from project import CHECKOUT, version

KINDS: Final = ("added", "changed", "deprecated", "removed", "fixed", "security")
STEPS: Final = """\
1. set `version` in setup.cfg and in packaging/chart/Chart.yaml, run `make lock manifests`, and commit
2. move what is below to CHANGELOG.md, remove its files in changes/, and commit
3. git tag --sign v{version} --message 'liqod {version}'
4. make dist deb sbom chart image, and make image ARGS='--arch arm64'; compare the digests with a second machine's
5. make sign ARGS='--key FILE', and `make sign ARGS=--check`
6. upload the wheel and dist/liqod-{version}.tar.gz to the package index, and dist/* to the release's page; push the tag
7. skopeo copy oci-archive:dist/liqod-{version}-amd64.oci.tar docker://REGISTRY/liqod:{version}, and that of arm64
8. helm push dist/liqod-{version}.tgz oci://REGISTRY/charts
"""


def main() -> None:
    """Show problems, or the steps; exits with status 1 if there are problems."""
    problems = check()
    for problem in problems:
        print(f"not yet: {problem}")
    print(STEPS.format(version=version()))
    print(news(fragments(CHECKOUT / "changes")))
    sys.exit(1 if problems else 0)


def check() -> list[str]:
    """Return what keeps this commit from being released."""
    problems = []
    if _git("status", "--porcelain"):
        problems.append("there are changes that are not committed")
    if _git("tag", "--list", f"v{version()}"):
        problems.append(f"v{version()} is released already: set the next version in setup.cfg")
    if not any(line.strip() and not line.startswith("#") for line in sign.SIGNERS.read_text("utf-8").splitlines()):
        problems.append(f"packaging/{sign.SIGNERS.name} has no key: nobody could verify a signature")
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        builds = [[path.read_bytes() for path in dist.build(Path(place))] for place in (first, second)]
        if builds[0] != builds[1]:
            problems.append("two builds of this commit differ")
    return problems


def fragments(directory: Path) -> Mapping[str, Sequence[str]]:
    """Return the sentences by kind; raises ValueError for a file with another name."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for file in sorted(directory.glob("*")):
        if file.name == "README.md":
            continue
        _, _, kind = file.name.removesuffix(".md").rpartition(".")
        if kind not in found or not file.name.endswith(".md"):
            raise ValueError(f"{file.name}: files are named NAME.KIND.md; kinds are {', '.join(KINDS)}")
        found[kind].append(" ".join(file.read_text(encoding="utf-8").split()))
    return found


def news(found: Mapping[str, Sequence[str]]) -> str:
    """Return the section for CHANGELOG.md."""
    lines = []
    for kind, sentences in found.items():
        if sentences:
            lines += [f"### {kind.capitalize()}", "", *(f"* {sentence}" for sentence in sentences), ""]
    return "\n".join(lines)


def _git(*words: str) -> str:
    argv = ["git", "-C", str(CHECKOUT), *words]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
