"""Alert rules, dashboard and runbooks speak of metrics that the daemon has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client.metrics import MetricWrapperBase
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.metrics.daemon import register
from liqod.kube.cache.informer import Informer
from liqod.metrics.registry import Registry
from liqod.webhook.configuration import WEBHOOK_NAME

CHECKOUT: Final = Path(__file__).resolve().parents[2]
MONITORING: Final = CHECKOUT / "packaging/monitoring"
METRIC: Final = re.compile(r"(liqod_\w+)(?:\{([^}]*)\})?")
RATED: Final = re.compile(r"(?:rate|increase)\((liqod_\w+)")
GROUPED: Final = re.compile(r"(?:by|on) \(([^)]*)\)")
SUFFIXES: Final = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


class StandingBy:
    """A daemon that does nothing."""

    caches: list[Informer[Any]] = []
    client = None
    home = None
    features = None
    node = None
    pages = None

    def __init__(self) -> None:
        self.registry = Registry()


def served() -> dict[str, tuple[str, frozenset[str]]]:
    """Return type and labels of every time series of a daemon, by its name."""
    daemon = StandingBy()
    register(daemon)
    found = {}
    for collector in daemon.registry._registry._collector_to_names:
        one: Any = collector
        if isinstance(collector, MetricWrapperBase):
            kind, name, labels = one._type, one._name, one._labelnames
        else:
            kind, name, labels = one._kind, one._name, one._labels
        for suffix in SUFFIXES[kind]:
            found[name + suffix] = (kind, frozenset(labels))
    return found


def rules() -> list[dict[str, Any]]:
    """Return the alert rules."""
    return [
        rule for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
    ]


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the name of each alert and panel with its expression."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


class MonitoringTests(SynchronousTestCase):
    """What ``packaging/monitoring`` says."""

    def test_metrics_exist_with_their_type_and_labels(self) -> None:
        """Each series is served; rates are of counters; the labels that are selected or grouped by exist."""
        known = served()
        for name, expression in expressions():
            used = METRIC.findall(expression)
            labels = {"le", "job", "instance"}
            for metric, selected in used:
                self.assertIn(metric, known, name)
                labels |= known[metric][1]
                self.assertLessEqual(set(re.findall(r"(\w+)(?:!?[=~]+)", selected)), set(known[metric][1]), name)
            for group in GROUPED.findall(expression):
                self.assertLessEqual({label.strip() for label in group.split(",")}, labels, name)
            for metric in RATED.findall(expression):
                self.assertNotEqual(known[metric][0], "gauge", name)

    def test_each_alert_has_a_runbook(self) -> None:
        """Its section is there, the rule points at it, and no section is about an alert that is gone."""
        page = (CHECKOUT / "docs/runbooks.md").read_text()
        sections = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
        self.assertEqual(sections, [rule["alert"] for rule in rules()])
        for rule in rules():
            self.assertEqual(rule["annotations"]["runbook_url"], f"docs/runbooks.md#{rule['alert'].lower()}")
            self.assertIn(rule["labels"]["severity"], {"critical", "warning", "info"})
            self.assertEqual({"summary", "description", "runbook_url"}, set(rule["annotations"]))

    def test_each_alert_is_seen_to_fire_and_not_to(self) -> None:
        """Its unit tests have a time at which it fires, with the texts of the rule, and times before and after."""
        groups = yaml.safe_load((MONITORING / "alerts_test.yaml").read_text())["tests"]
        times: dict[str, list[tuple[int, bool]]] = {}
        for group in groups:
            for case in group["alert_rule_test"]:
                fires = bool(case["exp_alerts"])
                times.setdefault(case["alertname"], []).append((int(case["eval_time"].removesuffix("m")), fires))
        for rule in rules():
            fired = [minute for minute, fires in times[rule["alert"]] if fires]
            self.assertTrue(fired, rule["alert"])
            self.assertTrue([minute for minute, fires in times[rule["alert"]] if not fires], rule["alert"])
        self.assertEqual(set(times), {rule["alert"] for rule in rules()})

    def test_the_webhook_of_the_alert(self) -> None:
        """The API server counts the calls of a webhook by its name."""
        rule = next(rule for rule in rules() if rule["alert"] == "LiqodWebhookUnreachable")
        self.assertIn(f'{{name="{WEBHOOK_NAME}"}}', rule["expr"])
