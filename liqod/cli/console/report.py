"""Prints findings: grouped with marks for people, as plain values for programs."""

from __future__ import annotations

from collections.abc import Sequence

from liqod.cli.console import terminal
from liqod.cli.console.findings import Finding, lines
from liqod.cli.console.options import Options
from liqod.cli.console.session import Output


def report(options: Options, findings: Sequence[Finding]) -> None:
    """Print the findings of a command."""
    if not options.is_document:
        for text, style in lines(findings):
            stripped = text.lstrip()
            indent = " " * (len(text) - len(stripped))
            terminal.echo_wrapped(stripped, style, indent=indent, hanging=indent + "  ")
    Output(options).publish([finding.as_row() for finding in findings])
