"""Makes the corpus: ``python -m tests.fuzz.seeds [TARGET...]``. What a fuzzer begins with, what every test repeats.

Inputs that once broke something are kept in the same folders under the name of what they broke.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.fuzz.targets.every import seeds

CORPUS: Final = Path(__file__).parent / "corpus"


def main() -> None:
    """Write the files of these targets, of all when none is named."""
    for name, contents in seeds().items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(contents):
            (folder / f"seed-{number:02}").write_bytes(content)


if __name__ == "__main__":
    main()
