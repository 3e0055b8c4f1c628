"""The alert rules and the job of ``packaging/monitoring`` as a test uses them: the same, but sooner. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any, Final

FACTOR: Final = 20
"""How many times sooner everything of minutes and hours is: five minutes are a quarter of one."""
INTERVAL: Final = "3s"
"""How often is scraped and evaluated: often enough for a rate over the shortest range."""
JOB: Final = "liqod"
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}
_DURATION: Final = re.compile(r"(\d+)([smh])")
_RANGE: Final = re.compile(r"\[(\d+[smh])\]")


def hastened(rules: Mapping[str, Any], factor: int = FACTOR) -> dict[str, Any]:
    """Return a file of rules whose ``for`` and whose ranges are so many times shorter; those of weeks stay."""
    found: dict[str, Any] = copy.deepcopy(dict(rules))
    for group in found["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = shorter(rule["for"], factor)
            rule["expr"] = _RANGE.sub(lambda one: f"[{shorter(one[1], factor)}]", rule["expr"])
    return found


def shorter(duration: str, factor: int) -> str:
    """Return a duration divided; ValueError for one that is none of seconds, minutes or hours."""
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise ValueError(f"{duration} is no duration in s, m or h")
    return f"{int(found[1]) * _UNITS[found[2]] // factor}s"


def configured(
    published: Mapping[str, Any], target: str, *, token_file: str, ca_file: str, rule_file: str
) -> dict[str, Any]:
    """Return the configuration of one cluster's Prometheus: the published job of the daemons with places of its own."""
    job: dict[str, Any] = copy.deepcopy(next(one for one in published["scrape_configs"] if one["job_name"] == JOB))
    job["authorization"]["credentials_file"] = token_file
    job["tls_config"]["ca_file"] = ca_file
    job["static_configs"] = [{"targets": [target]}]
    return {
        "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [rule_file],
        "scrape_configs": [job],
    }


def firing(answer: Mapping[str, Any]) -> set[str]:
    """Return the names of the alerts that fire, in what ``/api/v1/alerts`` answers; pending ones do not."""
    return {one["labels"]["alertname"] for one in answer["data"]["alerts"] if one["state"] == "firing"}


def unhealthy(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return each rule that was not evaluated without an error, with why, in what ``/api/v1/rules`` answers."""
    rules = [rule for group in answer["data"]["groups"] for rule in group["rules"]]
    return {
        rule["name"]: f"{rule.get('health')}: {rule.get('lastError', '')}"
        for rule in rules
        if rule.get("health") != "ok"
    }


def evaluated(answer: Mapping[str, Any]) -> set[str]:
    """Return the names of all rules, alerts and recorded series alike."""
    return {rule["name"] for group in answer["data"]["groups"] for rule in group["rules"]}


def down(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return each target that is not up, with why, in what ``/api/v1/targets`` answers."""
    targets = answer["data"]["activeTargets"]
    return {one["scrapeUrl"]: one.get("lastError", "") for one in targets if one["health"] != "up"}
