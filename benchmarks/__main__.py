"""``python -m benchmarks [NAME] [OPTIONS]``: one of the benchmarks, or that of offloading with its defaults."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent


def modules() -> dict[str, str]:
    """Return the modules of the benchmarks by name: those in the folders here that have a ``main`` of their own."""
    return {
        file.stem: ".".join((HERE.name, *file.relative_to(HERE).with_suffix("").parts))
        for file in sorted(HERE.glob("*/*.py"))
        if file.stem[0] != "_" and "\ndef main() -> None:" in file.read_text("utf-8")
    }


def names() -> list[str]:
    """Return the names of the benchmarks."""
    return sorted(modules())


def main() -> None:
    """Run the named benchmark; what follows its name are its own options."""
    words = sys.argv[1:]
    name, known = "offload", modules()
    if words and not words[0].startswith("-"):
        name = words[0]
        if name not in known:
            sys.exit(f"there is no benchmark {name}; there are: {', '.join(names())}")
        del sys.argv[1]
    import_module(known[name]).main()


if __name__ == "__main__":
    main()
