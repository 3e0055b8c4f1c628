"""The rules that real Prometheus servers are given are the published ones, sooner; what they answer is read."""

from __future__ import annotations

import copy
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.packaging.test_monitoring import MONITORING, rules
from tests.real.alerting.cases import ANYWAY, CASES
from tests.real.alerting.rules import FACTOR, JOB, configured, down, evaluated, firing, hastened, shorter, unhealthy
from tests.real.broken_setups.drawing import drawn, thirty
from tests.real.broken_setups.faults import MAKERS


class HastenedTests(SynchronousTestCase):
    """The rules, twenty times sooner."""

    def setUp(self) -> None:
        self.published = yaml.safe_load((MONITORING / "alerts.yaml").read_text())

    def test_durations(self) -> None:
        """Seconds, minutes and hours are divided; anything else is refused."""
        self.assertEqual([shorter(one, 20) for one in ("5m", "1h", "0m", "40s")], ["15s", "180s", "0s", "2s"])
        self.assertRaises(ValueError, shorter, "1w", 20)
        self.assertRaises(ValueError, shorter, "1h30m", 20)

    def test_only_times_differ(self) -> None:
        """Names, labels and texts stay, expressions differ in their ranges alone, and the published rules stay."""
        before = copy.deepcopy(self.published)
        made = hastened(self.published)
        self.assertEqual(self.published, before)
        for group, other in zip(before["groups"], made["groups"], strict=True):
            for rule, sooner in zip(group["rules"], other["rules"], strict=True):
                self.assertEqual(without_times(rule), without_times(sooner))
                if "for" in rule:
                    self.assertEqual(sooner["for"], shorter(rule["for"], FACTOR))
                self.assertEqual("[1w]" in rule["expr"], "[1w]" in sooner["expr"])

    def test_configuration(self) -> None:
        """The job is the published one with places of its own: through TLS, with the name and a token."""
        published = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
        before = copy.deepcopy(published)
        found = configured(published, "10.99.0.11:5874", token_file="t", ca_file="c", rule_file="r")
        self.assertEqual(published, before)
        (job,) = found["scrape_configs"]
        self.assertEqual((job["job_name"], job["scheme"]), (JOB, "https"))
        self.assertEqual(job["static_configs"], [{"targets": ["10.99.0.11:5874"]}])
        self.assertEqual((job["authorization"], job["tls_config"]["ca_file"]), ({"credentials_file": "t"}, "c"))
        self.assertEqual(job["tls_config"]["server_name"], before["scrape_configs"][0]["tls_config"]["server_name"])
        self.assertEqual(found["rule_files"], ["r"])


class AnswerTests(SynchronousTestCase):
    """What Prometheus answers."""

    def test_alerts(self) -> None:
        """Those that fire count, pending ones do not."""
        alerts = [
            {"labels": {"alertname": "LiqodDown"}, "state": "firing"},
            {"labels": {"alertname": "LiqodProblem"}, "state": "pending"},
        ]
        self.assertEqual(firing({"data": {"alerts": alerts}}), {"LiqodDown"})

    def test_rules(self) -> None:
        """A rule that was not evaluated, or with an error, is named with it."""
        found: list[dict[str, Any]] = [
            {"name": "a", "health": "ok"},
            {"name": "b", "health": "err", "lastError": "many-to-many"},
            {"name": "c", "health": "unknown"},
        ]
        answer = {"data": {"groups": [{"rules": found}]}}
        self.assertEqual(unhealthy(answer), {"b": "err: many-to-many", "c": "unknown: "})
        self.assertEqual(evaluated(answer), {"a", "b", "c"})

    def test_targets(self) -> None:
        """A target that is not up is named with why."""
        targets = [
            {"scrapeUrl": "https://a/metrics", "health": "up", "lastError": ""},
            {"scrapeUrl": "https://b/metrics", "health": "down", "lastError": "401"},
        ]
        self.assertEqual(down({"data": {"activeTargets": targets}}), {"https://b/metrics": "401"})


class CaseTests(SynchronousTestCase):
    """What is broken."""

    def test_ten(self) -> None:
        """There are ten, each with a name, each a set-up of the thirty or one that is drawn, which can be made."""
        known = {one.fault for one in (*thirty(), *(each for seed in range(200) for each in drawn(seed)))}
        self.assertEqual(len({case.name for case in CASES}), 10)
        for case in CASES:
            self.assertIn(case.fault, known, case.name)
            self.assertIn(case.fault.kind, MAKERS)

    def test_alerts(self) -> None:
        """Every alert is one of ours, and none of them is one that a busy machine causes."""
        ours = {rule["alert"] for rule in rules()}
        for case in CASES:
            self.assertTrue(case.alerts, case.name)
            self.assertLessEqual(set(case.alerts), ours - ANYWAY, case.name)
        self.assertLessEqual(ANYWAY, ours)


def without_times(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule without what says how long something takes."""
    parts = rule["expr"].split("[")
    expression = "".join(part.partition("]")[2] if number else part for number, part in enumerate(parts))
    return {**{key: value for key, value in rule.items() if key != "for"}, "expr": expression}
