"""Figures that a test shows and does not judge: printed, and kept in ``.cache/figures``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

KEPT: Final = Path(__file__).resolve().parents[2] / ".cache" / "figures"


def keep(subject: str, line: str) -> None:
    """Print a figure, and keep it with others of its subject."""
    print(f"{subject}: {line}", flush=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / f"{subject}.txt").open("a") as file:
        file.write(f"{time.strftime('%F %T', time.gmtime())} {line}\n")
