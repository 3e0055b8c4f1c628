"""The chart's objects for values, as this program renders them; tests/real/chart_install.py compares Helm's."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import TestCase

import yaml

from liqod.agent.processes import CAPABILITIES, Process
from liqod.agent.state import (
    Campaigning,
    DaemonState,
    Leading,
    StandingBy,
    Starting,
    Stopping,
    Waiting,
    unmet,
)
from liqod.cli.setup.up.chart.evaluate import Evaluation
from liqod.cli.setup.up.chart.render import Release, default_values, is_hook, merged, notes, render
from liqod.cli.setup.up.chart.syntax import TemplateError, parse
from liqod.cli.setup.up.pods.wanted import Choices, Present, choose, objects, settings_of, split_image
from liqod.config.endpoints import is_loopback, port_of
from liqod.config.schema import Settings
from liqod.kubelet.api.node_ports import METRICS_OF_OTHERS
from liqod.metrics.certificate import SECRET as METRICS
from liqod.metrics.certificate import name_in
from liqod.model.diagnosis.installation import Unmet
from liqod.webhook.configuration import service_of
from tests.project.test_systemd import bounds

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "packaging/tools"))

import manifests  # noqa: E402 (the tools are scripts beside each other)

RELEASE = Release()
ALL: dict[str, Any] = {
    "network": {"enabled": True, "userspace": True},
    "names": {"enabled": True},
    "metrics": {name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "dashboard")},
}
"""Values that switch everything on."""
VARIANTS: dict[str, dict[str, Any]] = {
    "usual": {},
    "pod network": {"hostNetwork": False},
    "all": ALL,
    "all in the pod network": {**ALL, "hostNetwork": False, "webhook": {"service": False}},
    "privileged": {"network": {"enabled": True, "privileged": True}, "replicas": 1},
}
VIRTUAL = {"key": "liqo.io/type", "operator": "NotIn", "values": ["virtual-node"]}


def pod_specs(values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pods that a release has, by kind and name."""
    for body in render(values, RELEASE):
        name = f"{body['kind']} {body['metadata']['name']}"
        if body["kind"] == "Pod":
            yield name, body["spec"]
        elif "template" in (body.get("spec") or {}):
            yield name, body["spec"]["template"]["spec"]


def containers(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all containers of a pod."""
    return [*spec.get("initContainers", []), *spec["containers"]]


def unrestricted(spec: Mapping[str, Any]) -> list[str]:
    """Return what keeps a pod from the Pod Security level restricted (Kubernetes, "Pod Security Standards")."""
    found = [field for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    found += [next(iter({*one} - {"name"})) for one in spec.get("volumes", []) if "hostPath" in one]
    for one in containers(spec):
        context = one.get("securityContext", {})
        capabilities = context.get("capabilities", {})
        good = {
            "privileged": not context.get("privileged"),
            "escalation": context.get("allowPrivilegeEscalation") is False,
            "root": context.get("runAsNonRoot") is True and context.get("runAsUser") != 0,
            "capabilities": capabilities.get("drop") == ["ALL"] and not capabilities.get("add"),
            "seccomp": context.get("seccompProfile", {}).get("type") == "RuntimeDefault",
        }
        found += [f"{one['name']}: {name}" for name, is_good in good.items() if not is_good]
    return found


def named(values: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    """Return one object."""
    (found,) = [one for one in render(values, RELEASE) if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


class LanguageTests(TestCase):
    """The part of Go's templates that the chart uses."""

    def text(self, template: str, data: Any = None, **defined: str) -> str:
        """Return what a template prints."""
        files = [parse(text, name) for name, text in defined.items()]
        main = parse(template, "main")
        return Evaluation([main, *files]).text_of(main.nodes, data)

    def test_results(self) -> None:
        """Each case prints what Go's text/template and Helm's functions print."""
        data = {"a": {"b": "x"}, "n": 3, "off": False, "map": {"z": 1, "k": 2}, "list": ["p", "q"], "empty": {}}
        for template, printed in (
            ("{{ .a.b }}", "x"),
            ("a\n  {{- .a.b -}}  \n b", "axb"),
            ("{{- /* nothing */}}x", "x"),
            ("{{ .n }} {{ .off }}", "3 false"),
            ("{{ if .off }}1{{ else if eq .n 3 }}2{{ else }}3{{ end }}", "2"),
            ("{{ if .empty }}1{{ else }}2{{ end }}", "2"),
            ("{{ with .a }}{{ .b }}{{ $.n }}{{ end }}", "x3"),
            ("{{ range $key, $value := .map }}{{ $key }}={{ $value }};{{ end }}", "k=2;z=1;"),
            ("{{ range $one := .list }}{{ $one }}{{ end }}{{ range .list }}{{ . }}{{ end }}", "pqpq"),
            ('{{ $x := dict "k" (list 1 2) }}{{ $x.k | toJson }}', "[1,2]"),
            ('{{ "a\\"b" | quote }}', '"a\\"b"'),
            ("{{ ternary 1 2 (and .n (not .off)) }}", "1"),
            ("{{ or .off .n }}", "3"),
            ('{{ .missing | default "d" }}', "d"),
            ("{{ toYaml .map | nindent 2 }}", "\n  k: 2\n  z: 1"),
            ('{{ include "t" . | trim }}', "x"),
        ):
            self.assertEqual(self.text(template, data, t='{{ define "t" }} {{ .a.b }} {{ end }}'), printed, template)

    def test_refused(self) -> None:
        """What is wrong, or not known here, is refused with the place."""
        for template in (
            "{{ if .a }}",
            "{{ end }}",
            "{{ nothing .a }}",
            "{{ .a | }}",
            "{{ (.a }}",
            "{{ .missing }}",
            "{{ $x }}",
            '{{ include "t" . }}',
            '{{ fail "no" }}',
            "{{ .a ? .b }}",
        ):
            with self.assertRaises(TemplateError, msg=template):
                self.text(template, {"a": "x"})


class ValueTests(TestCase):
    """How values are merged."""

    def test_merged(self) -> None:
        """Tables are merged, other values replaced, and None removes, without a change of the defaults."""
        base = {"a": {"b": 1, "c": 2}, "d": [1]}
        self.assertEqual(merged(base, {"a": {"b": None, "e": 3}, "d": [2]}), {"a": {"c": 2, "e": 3}, "d": [2]})
        self.assertEqual(base, {"a": {"b": 1, "c": 2}, "d": [1]})
        self.assertEqual(merged(default_values(), {}), default_values())


class PodTests(TestCase):
    """Every pod of every variant."""

    def test_restricted(self) -> None:
        """What does not need the host's network satisfies the level restricted; nothing else is privileged."""
        for variant, values in VARIANTS.items():
            for name, spec in pod_specs(values):
                problems = unrestricted(spec)
                if name.startswith("DaemonSet "):
                    self.assertTrue(spec["hostNetwork"], name)
                elif spec.get("hostNetwork"):
                    self.assertEqual(problems, ["hostNetwork"], (variant, name))
                else:
                    self.assertEqual(problems, [], (variant, name))
        in_pod_network = [name for name, spec in pod_specs({"hostNetwork": False}) if unrestricted(spec)]
        self.assertEqual(in_pod_network, [])

    def test_capabilities(self) -> None:
        """Network agents hold what their unit on a host holds, unless they are privileged, and no other pod any."""
        wanted = {name.removeprefix("CAP_") for name in CAPABILITIES[Process.NETWORK]}
        for name, spec in pod_specs(ALL):
            for one in containers(spec):
                added = set(one["securityContext"]["capabilities"].get("add", []))
                self.assertEqual(added, wanted if name.startswith("DaemonSet ") else set(), name)
                self.assertNotIn("privileged", one["securityContext"])
        (gateway, node) = [spec for name, spec in pod_specs(VARIANTS["privileged"]) if name.startswith("DaemonSet ")]
        for spec in (gateway, node):
            self.assertTrue(spec["containers"][0]["securityContext"]["privileged"])

    def test_never_at_a_peer(self) -> None:
        """No pod is scheduled on a virtual node, whatever it tolerates."""
        for variant, values in VARIANTS.items():
            for name, spec in pod_specs(values):
                terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                self.assertTrue(terms["nodeSelectorTerms"], name)
                for term in terms["nodeSelectorTerms"]:
                    self.assertIn(VIRTUAL, term["matchExpressions"], (variant, name))

    def test_priorities(self) -> None:
        """What runs has a priority; that of an agent, which each node has, is a node's."""
        for name, spec in pod_specs(ALL):
            if name.startswith("DaemonSet "):
                self.assertEqual(spec["priorityClassName"], "system-node-critical", name)
            elif name.startswith(("Deployment ", "StatefulSet ")):
                self.assertEqual(spec["priorityClassName"], "system-cluster-critical", name)

    def test_memory_as_on_a_host(self) -> None:
        """The limits are those of the units."""
        values = default_values()
        for part, unit in (("network", "liqod-network"), ("names", "liqod-names")):
            limit = values[part]["resources"]["limits"]["memory"]
            self.assertEqual(int(limit[:-2]) << {"Mi": 20, "Gi": 30}[limit[-2:]], bounds(unit)["MemoryMax"], unit)

    def test_selectors(self) -> None:
        """Each workload and each budget selects its own pods and no others."""
        bodies = render(ALL, RELEASE)
        selectors = {
            f"{one['kind']} {one['metadata']['name']}": one["spec"]["selector"]["matchLabels"]
            for one in bodies
            if one["kind"] in ("Deployment", "DaemonSet", "StatefulSet", "PodDisruptionBudget")
        }
        labels = {
            f"{one['kind']} {one['metadata']['name']}": one["spec"]["template"]["metadata"]["labels"]
            for one in bodies
            if one["kind"] in ("Deployment", "DaemonSet", "StatefulSet", "Job")
        }
        for owner, selector in selectors.items():
            mine = [name for name, found in labels.items() if selector.items() <= found.items()]
            self.assertEqual(len(mine), 1, owner)
            if not owner.startswith("PodDisruptionBudget"):
                self.assertEqual(mine, [owner])

    def test_probes(self) -> None:
        """A pod is ready when it does its work or can take over, and lives while its process is sound."""
        for variant, values in VARIANTS.items():
            for name, spec in pod_specs(values):
                found = {
                    probe: re.findall(r"/(readyz|healthz)", str(one[probe]))
                    for one in spec["containers"]
                    for probe in ("readinessProbe", "livenessProbe", "startupProbe")
                    if probe in one
                }
                wanted = {"readinessProbe": ["readyz"], "livenessProbe": ["healthz"], "startupProbe": ["healthz"]}
                has_pages = name in ("Deployment liqod", "DaemonSet liqod-gateway", "DaemonSet liqod-node")
                if has_pages or name == "StatefulSet liqod-names":
                    self.assertEqual(found, wanted, (variant, name))
                else:
                    self.assertEqual(found, {}, (variant, name))

    def test_who_is_ready(self) -> None:
        """Such a probe holds for a leader at work and for a standby, and for no daemon before and after that."""
        lack = Unmet("CachesIncomplete", "the first lists of the records are not complete")
        cases: list[tuple[DaemonState, bool]] = [
            (Starting(), False),
            (Waiting("APIUnreachable", "the API server does not answer"), False),
            (Campaigning(), False),
            (StandingBy("liqod-1"), True),
            (Leading((lack,)), False),
            (Leading(), True),
            (Stopping(), False),
        ]
        for state, is_ready in cases:
            self.assertEqual(not unmet(state), is_ready, state)

    def test_drains(self) -> None:
        """A drain takes pods that are not ready: where none can work none would go."""
        budgets = [one for one in render(ALL, RELEASE) if one["kind"] == "PodDisruptionBudget"]
        self.assertEqual([one["spec"]["unhealthyPodEvictionPolicy"] for one in budgets], ["AlwaysAllow"] * 2)

    def test_of_helm_test(self) -> None:
        """The test of a release runs a command that fails where no daemon works, with the daemon's settings."""
        for variant, values in VARIANTS.items():
            (spec,) = [spec for name, spec in pod_specs(values) if name == "Pod liqod-check"]
            (test,) = spec["containers"]
            self.assertEqual((test["command"][1:], spec["restartPolicy"]), (["check"], "Never"), variant)
            daemon = named(values, "Deployment", "liqod")["spec"]["template"]["spec"]
            theirs = {one["name"]: one.get("value") for one in daemon["containers"][0]["env"]}
            own = {one["name"]: one["value"] for one in test["env"]}
            self.assertLessEqual(own.items(), theirs.items(), variant)
            self.assertEqual(spec["serviceAccountName"], daemon["serviceAccountName"])


class SettingTests(TestCase):
    """What the pods are configured to be."""

    def settings(self, values: Mapping[str, Any]) -> dict[str, Settings]:
        """Return the settings of each role."""
        return {one.daemon.role: one for one in settings_of(render(values, RELEASE), "")}

    def test_roles(self) -> None:
        """One process without agents, else control beside a process for each part; all in one namespace."""
        self.assertEqual(list(self.settings({})), ["all"])
        self.assertEqual(set(self.settings(ALL)), {"control", "network", "names"})
        self.assertEqual(next(iter(self.settings(ALL))), "control")
        self.assertEqual(self.settings({})["all"].network.mode, "none")
        control = self.settings(ALL)["control"]
        self.assertEqual((control.network.mode, control.names.enabled), ("auto", True))
        self.assertFalse(control.kubernetes.manage_crds)

    def test_gateway(self) -> None:
        """The gateway is where the selector says, and agents of nodes are everywhere else."""
        for selector in (
            {"liqod.io/gateway": "true"},
            {"liqod.io/gateway": None, "kubernetes.io/hostname": "a", "x": "y"},
        ):
            values = {"network": {"enabled": True, "gateway": {"nodeSelector": selector}}}
            wanted = {key: value for key, value in selector.items() if value is not None}
            gateway, node = (named(values, "DaemonSet", f"liqod-{one}") for one in ("gateway", "node"))
            self.assertEqual(gateway["spec"]["template"]["spec"]["nodeSelector"], wanted)
            spec = node["spec"]["template"]["spec"]
            self.assertNotIn("nodeSelector", spec)
            terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            found = [term["matchExpressions"][1] for term in terms["nodeSelectorTerms"]]
            self.assertEqual({one["key"]: one["values"] for one in found}, {k: [v] for k, v in wanted.items()})
            self.assertEqual({one["operator"] for one in found}, {"NotIn"})
            roles = [
                {one["name"]: one.get("value") for one in body["spec"]["template"]["spec"]["containers"][0]["env"]}
                for body in (gateway, node)
            ]
            self.assertEqual([one["LIQOD_NETWORK__ROLE"] for one in roles], ["gateway", "node"])
            self.assertEqual({one["LIQOD_DAEMON__ROLE"] for one in roles}, {"network"})

    def test_userspace(self) -> None:
        """wireguard-go has a pod that no upgrade replaces, and shares its sockets with the agent."""
        tunnel = named(ALL, "DaemonSet", "liqod-tunnel")
        self.assertEqual(tunnel["spec"]["updateStrategy"], {"type": "OnDelete"})
        pods = [tunnel, named(ALL, "DaemonSet", "liqod-gateway")]
        paths = [
            {one["hostPath"]["path"] for one in body["spec"]["template"]["spec"]["volumes"] if "hostPath" in one}
            for body in pods
        ]
        self.assertEqual(paths[0] & paths[1], {"/var/run/wireguard"})
        kinds = [one["metadata"]["name"] for one in render({"network": {"enabled": True}}, RELEASE)]
        self.assertNotIn("liqod-tunnel", kinds)

    def test_services(self) -> None:
        """Services lead to the leader, which writes their endpoints: no selector, and the daemon knows their names."""
        for values, wanted in (
            ({}, {"liqod-webhook"}),
            ({"hostNetwork": False}, {"liqod-webhook", "liqod-peers"}),
            ({"hostNetwork": False, "webhook": {"service": False}}, {"liqod-peers"}),
            ({"webhook": {"service": False}}, set()),
        ):
            made = [one for one in render(values, RELEASE) if one["kind"] == "Service"]
            self.assertEqual({one["metadata"]["name"] for one in made}, wanted)
            for one in made:
                self.assertNotIn("selector", one["spec"])
                self.assertTrue(all(isinstance(port["targetPort"], int) for port in one["spec"]["ports"]))
            settings = self.settings(values)["all"]
            self.assertEqual(set(settings.kubernetes.leader_services), wanted)
            service = service_of(settings.webhook.service)
            self.assertEqual(service is not None and service.name, "liqod-webhook" in wanted and "liqod-webhook")

    def test_names(self) -> None:
        """Two processes, each with a slot of its own, which its number in the set is."""
        names = named(ALL, "StatefulSet", "liqod-names")
        self.assertEqual((names["spec"]["replicas"], names["spec"]["ordinals"]), (2, {"start": 1}))
        env = names["spec"]["template"]["spec"]["containers"][0]["env"]
        (slot,) = [one for one in env if one["name"] == "LIQOD_NAMES__SLOT"]
        self.assertIn("apps.kubernetes.io/pod-index", slot["valueFrom"]["fieldRef"]["fieldPath"])

    def test_monitoring(self) -> None:
        """Behind switches: a monitor, who may read, the project's alerts and dashboard; all of the job liqod."""
        usual = {one["kind"] for one in render({}, RELEASE)}
        kinds = {one["kind"] for one in render(ALL, RELEASE)}
        self.assertEqual({"ServiceMonitor", "PrometheusRule", "ClusterRole"} & usual, set())
        self.assertLessEqual({"ServiceMonitor", "PrometheusRule", "ClusterRole"}, kinds)
        rules = yaml.safe_load((CHECKOUT / "packaging/monitoring/alerts.yaml").read_text())
        self.assertEqual(named(ALL, "PrometheusRule", "liqod")["spec"], rules)
        text = (CHECKOUT / "packaging/monitoring/dashboard.json").read_text()
        self.assertEqual(named(ALL, "ConfigMap", "liqod-dashboard")["data"]["liqod.json"], text)
        monitor = named(ALL, "ServiceMonitor", "liqod")["spec"]
        self.assertEqual(monitor["jobLabel"], "app.kubernetes.io/name")
        (endpoint,) = monitor["endpoints"]
        self.assertEqual(endpoint["tlsConfig"]["serverName"], name_in(RELEASE.namespace))
        service = named(ALL, "Service", METRICS)
        self.assertLessEqual(monitor["selector"]["matchLabels"].items(), service["metadata"]["labels"].items())
        daemon = named(ALL, "Deployment", "liqod")["spec"]["template"]["metadata"]["labels"]
        self.assertLessEqual(service["spec"]["selector"].items(), daemon.items())
        readers = [{"namespace": "monitoring", "name": "prometheus"}]
        bound = named({"metrics": {"readers": readers}}, "ClusterRoleBinding", METRICS)
        self.assertEqual([(one["namespace"], one["name"]) for one in bound["subjects"]], [("monitoring", "prometheus")])

    def test_pages(self) -> None:
        """The daemon's pages have TLS and ask who reads them; agents and names have theirs at loopback."""
        for role, settings in self.settings(ALL).items():
            is_open = role == "control"
            self.assertEqual(is_loopback(settings.metrics.listen), not is_open, role)
            if is_open:
                self.assertEqual((settings.metrics.tls, settings.metrics.authentication), ("own", "kubernetes"))
            else:
                self.assertIn(port_of(settings.metrics.listen), METRICS_OF_OTHERS, role)
        for name, spec in pod_specs(ALL):
            for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
                asked = spec["containers"][0].get(probe, {})
                if "httpGet" in asked:
                    is_own_host = asked["httpGet"].get("host") == "127.0.0.1"
                    self.assertEqual(is_own_host, name.startswith("DaemonSet "), name)
                    self.assertTrue(is_own_host or asked["httpGet"]["scheme"] == "HTTPS", name)

    def test_accounts(self) -> None:
        """Before an installation a job makes the account of each process, after the configuration was checked."""
        job = named(ALL, "Job", "liqod-setup-install")["spec"]["template"]["spec"]
        self.assertEqual(
            [one["name"] for one in job["initContainers"]], ["check-configuration", "names-account", "network-account"]
        )
        usual = named({}, "Job", "liqod-setup-install")["spec"]["template"]["spec"]["initContainers"]
        self.assertEqual([one["name"] for one in usual], ["check-configuration"])

    def test_notes(self) -> None:
        """What is said afterwards goes with the values."""
        self.assertIn("network.enabled=true makes tunnels", notes({}, RELEASE))
        self.assertIn("kubectl label node NODE liqod.io/gateway=true", notes(ALL, RELEASE))
        self.assertIn("advertise-addresses", notes({"hostNetwork": False}, RELEASE))


class ChoiceTests(TestCase):
    """What `up --in-cluster` chooses, and keeps."""

    usual = Choices("liqod", "cluster-1")

    def present(self, choices: Choices) -> Present:
        """Return the installation of some choices."""
        bodies = {(one["kind"], one["metadata"]["name"]): one for one in objects(choices, "liqo-system")}
        return Present(
            bodies.get(("Deployment", "liqod")),
            bodies.get(("DaemonSet", "liqod-gateway")),
            bodies.get(("ConfigMap", "liqod-configuration")),
            bodies.get(("DaemonSet", "liqod-tunnel")),
        )

    def test_kept(self) -> None:
        """What is not named is as it was; what is named changes, and so do the replicas with the nodes."""
        first = Choices(
            "registry:5000/liqod:test",
            "rome",
            "[sharing]\npercentage = 50\n",
            replicas=2,
            gateway={"kubernetes.io/hostname": "one"},
            userspace=True,
            local_image=True,
        )
        present = self.present(first)
        self.assertEqual(choose(present, nodes=3, usual=self.usual), first)
        other: dict[str, Any] = {"image": "other:1", "name": "milan", "gateway": {}, "configuration": ""}
        changed = choose(present, **other, nodes=1, usual=self.usual)
        self.assertEqual((changed.image, changed.name, changed.configuration), ("other:1", "milan", ""))
        self.assertEqual((changed.replicas, changed.gateway, changed.local_image), (1, {}, False))
        self.assertEqual(choose(Present(), nodes=1, usual=self.usual), self.usual)

    def test_release(self) -> None:
        """The image of a release is replaced by that of the program that runs, from the same registry."""
        present = self.present(Choices("registry/liqod:0.0.1", "rome"))
        self.assertEqual(choose(present, nodes=1, usual=self.usual).image, "registry/liqod")

    def test_images(self) -> None:
        """The port of a registry is no tag."""
        for image, parts in (
            ("liqod", ("liqod", "")),
            ("liqod:1", ("liqod", "1")),
            ("host:5000/liqod", ("host:5000/liqod", "")),
            ("host:5000/liqod:1", ("host:5000/liqod", "1")),
        ):
            self.assertEqual(split_image(image), parts)

    def test_objects(self) -> None:
        """They are the chart's, without what Helm runs, the configuration before what mounts it."""
        made = objects(Choices("liqod", "rome"), "liqo-system")
        self.assertFalse([one for one in made if is_hook(one)])
        self.assertEqual(made[0]["kind"], "ConfigMap")
        values = Choices("liqod", "rome").values()
        chart = [one for one in render(values, Release(manager="liqodctl")) if not is_hook(one)]
        self.assertEqual(sorted(map(str, made)), sorted(map(str, chart)))


class ManifestTests(TestCase):
    """packaging/manifests, for `kubectl apply -k`."""

    def test_made(self) -> None:
        """They are what `make manifests` makes."""
        different = [
            name
            for name, text in manifests.files()
            if not (path := CHECKOUT / name).is_file() or path.read_text() != text
        ]
        self.assertEqual(different, [], "run `make manifests`")

    def test_complete(self) -> None:
        """They hold the chart's pods, an account with rights for each, and a namespace that admits them."""
        for values in manifests.VARIANTS.values():
            made = manifests.objects(values)
            accounts = {one["metadata"]["name"] for one in made if one["kind"] == "ServiceAccount"}
            specs = [one["spec"]["template"]["spec"] for one in made if "template" in (one.get("spec") or {})]
            self.assertEqual({one["serviceAccountName"] for one in specs}, accounts)
            bound = {one["metadata"]["name"] for one in made if one["kind"] in ("ClusterRoleBinding", "RoleBinding")}
            self.assertLessEqual(accounts, bound)
            self.assertNotIn("cluster-admin", str(made))
