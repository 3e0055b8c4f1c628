"""What collects logs and metrics of offloaded pods asks for what liqod serves, and for no more rights than it takes."""

from __future__ import annotations

import re
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.api.answers import MAX_FOLLOWED, MAX_STREAMS
from liqod.kubelet.api.targets import Logs, NodeRight, Page, parse, rights
from liqod.metrics.certificate import name_in
from liqod.model.names import TAINT_KEY, TYPE_LABEL, VIRTUAL_NODE_TYPE
from tests.packaging.test_monitoring import CHECKOUT, MONITORING, rules
from tests.project.test_limits import numbers, wrong

PAGE = (CHECKOUT / "docs/offloaded-pods.md").read_text()
NODE_LABEL = "__meta_kubernetes_node_label_" + re.sub(r"[^a-zA-Z0-9_]", "_", TYPE_LABEL)
"""The label of a virtual node as Prometheus, and Alloy with the same code, names it."""


def jobs() -> dict[str, Any]:
    """Return the jobs of Prometheus by name."""
    found = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    return {job["job_name"]: job for job in found["scrape_configs"]}


def roles() -> dict[str, list[dict[str, Any]]]:
    """Return the rules of each role."""
    found = yaml.safe_load_all((MONITORING / "rights.yaml").read_text())
    return {role["metadata"]["name"]: role["rules"] for role in found}


def granted(name: str) -> set[str]:
    """Return the verbs and resources of a role."""
    return {
        f"{verb} {resource}"
        for rule in roles()[name]
        for resource in rule.get("resources", rule.get("nonResourceURLs", ()))
        for verb in rule["verbs"]
    }


class PrometheusTests(SynchronousTestCase):
    """The jobs."""

    def test_virtual_nodes(self) -> None:
        """Both jobs are about virtual nodes alone."""
        for name in ("liqod-virtual-nodes", "offloaded-pods"):
            first = jobs()[name]["relabel_configs"][0]
            self.assertEqual(first, {"source_labels": [NODE_LABEL], "regex": VIRTUAL_NODE_TYPE, "action": "keep"})
        self.assertIn(f"source_labels: [{NODE_LABEL}], regex: {VIRTUAL_NODE_TYPE}, action: drop", PAGE)

    def test_usage(self) -> None:
        """The page of usage is served, and the role lets its reader have it without a way into pods."""
        target = parse(jobs()["liqod-virtual-nodes"]["metrics_path"])
        self.assertIsInstance(target, Page)
        self.assertIn(NodeRight("get", "metrics"), rights(target, "GET"))
        found = granted("liqod-offloaded-metrics")
        self.assertIn("get nodes/metrics", found)
        reading = ("get ", "list ", "watch ")
        self.assertEqual({one for one in found if "proxy" in one or not one.startswith(reading)}, set())

    def test_own_pages(self) -> None:
        """The name is the one in the certificate, the job that of the alerts, and the role has the pages."""
        job = jobs()["liqod"]
        self.assertEqual(job["tls_config"]["server_name"], name_in("liqo-system"))
        self.assertNotIn("insecure_skip_verify", job["tls_config"])
        self.assertTrue(any('job="liqod"' in rule["expr"] for rule in rules()))
        self.assertEqual(granted("liqod-scrape"), {"get /metrics"})

    def test_ports_of_pods(self) -> None:
        """The annotated port replaces the one that was found, of addresses of both IP versions."""
        found = jobs()["offloaded-pods"]["relabel_configs"]
        rule = next(one for one in found if one.get("target_label") == "__address__")
        pattern, made = re.compile(rule["regex"]), rule["replacement"].replace("$1", r"\1").replace("$2", r"\2")
        for address, expected in (
            ("10.71.0.5:8080", "10.71.0.5:9100"),
            ("10.71.0.5", "10.71.0.5:9100"),
            ("[fd00::5]:8080", "[fd00::5]:9100"),
            ("[fd00::5]", "[fd00::5]:9100"),
        ):
            matched = pattern.fullmatch(f"{address};9100")
            assert matched is not None
            self.assertEqual(matched.expand(made), expected)
        self.assertIsNone(pattern.fullmatch("10.71.0.5:8080;"))


class LogTests(SynchronousTestCase):
    """The configuration of Alloy."""

    def setUp(self) -> None:
        self.text = (MONITORING / "offloaded-pods.alloy").read_text()

    def test_virtual_nodes(self) -> None:
        """It keeps the containers of pods on virtual nodes, and knows a node's labels for that."""
        rules_of = re.findall(r"rule \{(.*?)\}", self.text, re.DOTALL)
        first = dict(re.findall(r"(\w+)\s*= (\[?\"[^\n]+)", rules_of[0]))
        wanted = {"source_labels": f'["{NODE_LABEL}"]', "regex": f'"{VIRTUAL_NODE_TYPE}"', "action": '"keep"'}
        self.assertEqual(first, wanted)
        self.assertRegex(self.text, r"attach_metadata \{\s+node = true\s+\}")

    def test_parts_are_joined(self) -> None:
        """Each part that another one names is there, and braces are closed."""
        parts = {f"{kind}.{label}" for kind, label in re.findall(r'^([\w.]+) "(\w+)" \{', self.text, re.MULTILINE)}
        used = set(re.findall(r"((?:discovery|loki)\.[\w.]+)\.(?:targets|output|receiver)", self.text))
        self.assertEqual(used - parts, set())
        self.assertEqual(self.text.count("{"), self.text.count("}"))

    def test_what_it_asks_for(self) -> None:
        """Its request, as it comes from the API server, is a log that is followed from the last line on."""
        query = "follow=true&sinceTime=2026-11-27T00%3A00%3A00Z&timestamps=true"
        target = parse(f"/containerLogs/shop/web-0/main?{query}")
        assert isinstance(target, Logs)
        self.assertTrue(target.follows)
        self.assertLessEqual({("sinceTime", "2026-11-27T00:00:00Z"), ("timestamps", "true")}, set(target.query))
        self.assertIn("get pods/log", granted("liqod-offloaded-logs"))
        self.assertNotIn("create pods/exec", granted("liqod-offloaded-logs"))

    def test_which_logs_are_followed(self) -> None:
        """Whatever Go takes for true is counted; a log that is read once is not."""
        for value, follows in (("true", True), ("1", True), ("T", True), ("false", False), ("0", False), ("", False)):
            target = parse(f"/containerLogs/shop/web-0/main?follow={value}")
            assert isinstance(target, Logs)
            self.assertEqual(target.follows, follows, value)


class PageTests(SynchronousTestCase):
    """docs/offloaded-pods.md."""

    def test_numbers(self) -> None:
        """Those of the budget are the ones in the code, and leave room for others."""
        self.assertEqual(len(list(numbers(PAGE))), 2)
        self.assertEqual(wrong(PAGE), [])
        self.assertLess(MAX_FOLLOWED, MAX_STREAMS)

    def test_how_a_virtual_node_is_known(self) -> None:
        """By its taint in rules, by its label in affinities."""
        self.assertEqual(PAGE.count(f'kube_node_spec_taint{{key="{TAINT_KEY}"}}'), 2)
        self.assertIn(f"{{key: {TYPE_LABEL}, operator: NotIn, values: [{VIRTUAL_NODE_TYPE}]}}", PAGE)

    def test_alerts_that_say_why(self) -> None:
        """Each alert of ours that stands in for another one is there."""
        known = {rule["alert"] for rule in rules()}
        named = set(re.findall(r"`(Liqod\w+)`", PAGE))
        self.assertGreater(len(named), 4)
        self.assertEqual(named - known, set())
        self.assertGreater(len(set(re.findall(r"`(Kube\w+)`", PAGE))), 10)
