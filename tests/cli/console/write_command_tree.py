"""Writes the tree of commands that completion uses; run it after a change of commands or options."""

from __future__ import annotations

import json
from pathlib import Path

from liqod.cli.console.command_tree import describe
from liqod.cli.main import cli

FILE = Path(__file__).resolve().parents[3] / "liqod" / "cli" / "console" / "command_tree.json"


def text() -> str:
    """Return the tree as it is to be written."""
    return json.dumps(describe(cli), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
