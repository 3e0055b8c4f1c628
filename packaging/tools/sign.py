"""``make sign``: the digests of what is in dist, and their signature by a maintainer's key; ``--check`` verifies both.

The signature is one of OpenSSH (``ssh-keygen -Y``), as git tags may have: https://man.openbsd.org/ssh-keygen#Y. Who may
sign is in packaging/release-signers; the key itself stays with its owner, in a file or an agent.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from project import CHECKOUT, DIST

SIGNERS: Final = CHECKOUT / "packaging" / "release-signers"
SUMS: Final = "SHA256SUMS"
PURPOSE: Final = "liqod-release"
"""What the signature is for: one that its owner gave for anything else, such as a commit, does not count."""


class NotVerified(Exception):
    """The files are not those that a maintainer signed; the message says which, or what ssh-keygen says."""


def main() -> None:
    """Sign, or check; exits with status 1 for what is not as it was signed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=DIST, help="the directory with the files; default: dist")
    parser.add_argument("--key", help="the private key's file, or the public key's of one that an agent holds")
    parser.add_argument("--check", action="store_true", help="verify the files and the signature, and sign nothing")
    given = parser.parse_args()
    if given.check == bool(given.key):
        parser.error("give --key FILE to sign, or --check")
    try:
        lines = check(given.directory) if given.check else sign(given.directory, given.key)
    except NotVerified as error:
        sys.exit(f"not verified: {error}")
    print(*lines, sep="\n")


def sign(directory: Path, key: str) -> list[str]:
    """Write the digests of all files of a directory, and their signature; return what was signed, a line each."""
    lines = digests(directory)
    if not lines:
        raise NotVerified(f"{directory} has no files: make dist deb sbom")
    sums = directory / SUMS
    sums.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    # It asks before it overwrites a signature.
    sums.with_name(f"{SUMS}.sig").unlink(missing_ok=True)
    subprocess.run([_ssh_keygen(), "-Y", "sign", "-q", "-f", key, "-n", PURPOSE, str(sums)], check=True)
    return lines


def check(directory: Path, signers: Path = SIGNERS) -> list[str]:
    """Return what was signed, a line each, and by whom; raises NotVerified."""
    sums, signature = directory / SUMS, directory / f"{SUMS}.sig"
    for file in (sums, signature):
        if not file.is_file():
            raise NotVerified(f"there is no {file}")
    found = _asked("find-principals", "-s", str(signature), "-f", str(signers))
    if found.returncode:
        raise NotVerified(f"nobody in {signers.name} has signed {SUMS}")
    signer = found.stdout.splitlines()[0]
    options = ("-f", str(signers), "-I", signer, "-n", PURPOSE, "-s", str(signature))
    verified = _asked("verify", *options, content=sums.read_text(encoding="utf-8"))
    if verified.returncode:
        raise NotVerified(" ".join((verified.stdout + verified.stderr).split()))
    signed, present = sums.read_text(encoding="utf-8").splitlines(), digests(directory)
    if signed != present:
        differing = {line.split("  ", 1)[-1] for line in {*signed} ^ {*present}}
        raise NotVerified(f"other than what was signed: {', '.join(sorted(differing))}")
    return [*signed, f"signed by {signer}"]


def digests(directory: Path) -> list[str]:
    """Return the lines of sha256sum(1) for the files of a directory, by name."""
    files = sorted(path for path in directory.iterdir() if path.is_file() and not path.name.startswith(SUMS))
    return [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]


def _ssh_keygen() -> str:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise NotVerified("ssh-keygen is not installed: it comes with the client of OpenSSH")
    return program


def _asked(*words: str, content: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([_ssh_keygen(), "-Y", *words], input=content, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main()
