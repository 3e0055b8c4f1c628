"""Writes the table of what is known of platforms into its guide; run it after a change of that table."""

from __future__ import annotations

from pathlib import Path

from liqod.cli.setup.surroundings.notes import page

GUIDE = Path(__file__).resolve().parents[3] / "docs/guides/others.md"
BEGIN, END = "<!-- begin: python -m tests.cli.setup.write_others_page -->\n", "<!-- end -->\n"


def text() -> str:
    """Return the guide as it is to be written."""
    before, _, rest = GUIDE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{page()}\n{END}{after}"


if __name__ == "__main__":
    GUIDE.write_text(text())
