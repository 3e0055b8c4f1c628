"""Run the tests of all attacks that docs/attacks.md names: ``python -m tests.attack [--unit] [--list]``.

A module on real clusters, or with network namespaces, runs whole: its tests are steps. The last line is that of
``tests.run``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests import run
from tests.attack.page import attacks, selected


def main(argv: Sequence[str]) -> int:
    """Run the tests and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack")
    parser.add_argument("--unit", action="store_true", help="only those that need no root and no clusters")
    parser.add_argument("--list", action="store_true", help="only show their names")
    args = parser.parse_args(argv)
    names = selected(unit=args.unit)
    if args.list:
        print("\n".join(names))
        return 0
    print(f"{len(list(attacks()))} attacks", flush=True)
    return run.main(["--only", *names])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
