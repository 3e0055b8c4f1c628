"""What processes and API servers spent: CPU and memory from /proc, requests from the API server's own metrics."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
_SERIES = re.compile(r"^apiserver_request_total\{([^}]*)\} ([0-9.e+]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Spent:
    """CPU seconds (user and system, reaped children included), and resident MiB at most and now, of one process."""

    cpu: float
    peak_mib: float
    resident_mib: float


def spent(pid: int) -> Spent:
    """Return what a live process has spent so far; zero for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return Spent(0.0, 0.0, 0.0)
    peak, resident = (re.search(rf"{what}:\s+(\d+) kB", status) for what in ("VmHWM", "VmRSS"))
    return Spent(
        cpu=sum(int(field) for field in fields[11:15]) / TICK,
        peak_mib=int(peak[1]) / 1024 if peak else 0.0,
        resident_mib=int(resident[1]) / 1024 if resident else 0.0,
    )


def memory(status: str, rollup: str) -> tuple[float, float]:
    """Return what a process has in memory, and what of it is its own, in MiB, of its status and smaps_rollup. Pure."""
    resident = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    private = re.findall(r"^Private_(?:Clean|Dirty):\s+(\d+) kB$", rollup, re.MULTILINE)
    return (int(resident[1]) / 1024 if resident else 0.0), sum(map(int, private)) / 1024


def cpu_of(pids: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU seconds of named processes."""
    return {name: spent(pid).cpu for name, pid in pids.items()}


def difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Return what was spent between two readings."""
    return {name: value - before.get(name, 0.0) for name, value in after.items()}


def api_requests(metrics: str) -> Counter[tuple[str, str]]:
    """Count requests by (verb, resource/subresource) in the text of an API server's /metrics."""
    counted: Counter[tuple[str, str]] = Counter()
    for series in _SERIES.finditer(metrics):
        labels = dict(_LABEL.findall(series[1]))
        resource = labels.get("resource", "") + (f"/{labels['subresource']}" if labels.get("subresource") else "")
        counted[labels.get("verb", ""), resource] += round(float(series[2]))
    return counted


def per_pod(counted: Mapping[tuple[str, str], int], pods: int) -> list[tuple[str, str, float]]:
    """Return requests per pod, largest first, without watches and without what no pod causes (leases)."""
    rows = [
        (verb, resource, count / pods)
        for (verb, resource), count in counted.items()
        if verb != "WATCH" and resource not in {"leases", ""} and count / pods >= 0.005
    ]
    return sorted(rows, key=lambda row: -row[2])


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Render a Markdown table."""
    names = list(header)
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    lines += [
        "| " + " | ".join(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row) + " |"
        for row in rows
    ]
    return "\n".join(lines)
