"""Results in the XML that CI systems read (JUnit's, as Jenkins and GitLab document it). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as Xml  # Written, never parsed.

from liqod.cli.network.connectivity.verdicts import Result


def junit(results: Sequence[Result], *, seconds: float, started: str) -> str:
    """Return one suite for each peer; ``started`` is RFC 3339, and durations are in seconds."""
    root = Xml.Element("testsuites", {"name": "liqodctl test", "time": f"{seconds:.3f}", **_counts(results)})
    for peer in dict.fromkeys(one.peer for one in results):
        of_peer = [one for one in results if one.peer == peer]
        took = sum(one.seconds or 0 for one in of_peer)
        named = {"name": peer or "home", "timestamp": started, "time": f"{took:.3f}"}
        suite = Xml.SubElement(root, "testsuite", {**named, **_counts(of_peer)})
        for one in of_peer:
            name = f"{one.way}: {one.source} to {one.target}" + (f" ({one.subject})" if one.way == "start" else "")
            case = Xml.SubElement(
                suite,
                "testcase",
                classname=f"liqodctl.test.{peer or 'home'}",
                name=name,
                time=f"{one.seconds or 0:.3f}",
            )
            if one.outcome == "failed":
                failure = Xml.SubElement(case, "failure", message=one.cause, type=one.subject)
                failure.text = f"{one.cause}\nobject: {one.subject}\nnext: {one.next}"
            elif one.outcome == "skipped":
                Xml.SubElement(case, "skipped", message=one.cause)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _counts(results: Sequence[Result]) -> dict[str, str]:
    found = {"tests": len(results), "errors": 0}
    found["failures"] = sum(one.outcome == "failed" for one in results)
    found["skipped"] = sum(one.outcome == "skipped" for one in results)
    return {name: str(count) for name, count in found.items()}
