"""``python -m benchmarks [NAME] [OPTIONS]``: one of the benchmarks, or that of offloading with its defaults."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def names() -> list[str]:
    """Return the names of the benchmarks: the modules here that have a ``main`` of their own."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return [file.stem for file in files if file.stem[0] != "_" and "\ndef main() -> None:" in file.read_text("utf-8")]


def main() -> None:
    """Run the named benchmark; what follows its name are its own options."""
    words = sys.argv[1:]
    name = "offload"
    if words and not words[0].startswith("-"):
        name = words[0]
        if name not in names():
            sys.exit(f"there is no benchmark {name}; there are: {', '.join(names())}")
        del sys.argv[1]
    import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
