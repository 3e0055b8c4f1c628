"""Prometheus at home finds offloaded pods by the API server and scrapes them through the tunnel."""

from __future__ import annotations

import json
from functools import partial
from typing import Any
from urllib.parse import quote

from tests.real.path import NAMESPACE, eventually, live_pods
from tests.real.programs import ingress, traffic
from tests.real.programs.base import LONG, ProgramTests
from tests.real.programs.workloads import VIRTUAL, container, of_database, pod_spec, workload

NAME = "prometheus"
PORT = 9090
REDIS, EXPORTER_PORT = "redis", 9121
CONFIGURATION: dict[str, Any] = {
    "global": {"scrape_interval": "2s", "scrape_timeout": "2s"},
    "scrape_configs": [
        {
            "job_name": "pods",
            "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [NAMESPACE]}}],
            "relabel_configs": [
                {
                    "source_labels": ["__meta_kubernetes_pod_label_scraped"],
                    "regex": "yes",
                    "action": "keep",
                },
                {"source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": "metrics", "action": "keep"},
                {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
                {"source_labels": ["__meta_kubernetes_pod_node_name"], "target_label": "node"},
            ],
        }
    ],
}


def rights() -> list[dict[str, Any]]:
    """Return the account of Prometheus, which sees the pods of its namespace."""
    group = "rbac.authorization.k8s.io"
    meta = {"name": NAME, "namespace": NAMESPACE}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        },
    ]


def redis(replicas: int) -> dict[str, Any]:
    """Return servers of Redis for virtual nodes, each with the exporter of its metrics beside it."""
    main = container("exec redis-server --protected-mode no --save ''", port=6379)
    exporter = container("exec prometheus-redis-exporter -redis.addr=redis://127.0.0.1:6379", name="exporter")
    exporter["ports"] = [{"name": "metrics", "containerPort": EXPORTER_PORT}]
    spec = pod_spec(main, VIRTUAL, **of_database())
    spec["containers"].append(exporter)
    made = workload("Deployment", REDIS, spec, replicas=replicas)
    made["spec"]["template"]["metadata"]["labels"]["scraped"] = "yes"
    return made


class PrometheusTests(ProgramTests):
    """Steps in the order of their numbers."""

    built = ("home-client", "skipper")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return what an expression evaluates to now."""
        url = f"http://127.0.0.1:{PORT}/api/v1/query?query={quote(expression)}"
        (pod,) = live_pods(self.home, NAME)
        answer = json.loads(self.run_in(pod, "curl", "-s", "-m", "10", url))
        self.assertEqual(answer["status"], "success", answer)
        return list(answer["data"]["result"])

    def values(self, expression: str) -> dict[str, float]:
        """Return the values of an expression by pod."""
        return {one["metric"].get("pod", ""): float(one["value"][1]) for one in self.query(expression)}

    def test_01_scrapes(self) -> None:
        """Every offloaded pod is a target that is up, by the address that it has at home, on the virtual node."""
        self.begin()
        config = {"name": "prometheus", "namespace": NAMESPACE}
        text = {"prometheus.yml": json.dumps(CONFIGURATION)}
        self.home.apply(*rights(), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": config, "data": text})
        mounts = [{"name": "config", "mountPath": "/config"}, {"name": "data", "mountPath": "/data"}]
        script = "exec prometheus --config.file=/config/prometheus.yml --storage.tsdb.path=/data/tsdb"
        main = container(script, port=PORT, volumeMounts=mounts)
        volumes = [{"name": "config", "configMap": {"name": "prometheus"}}, {"name": "data", "emptyDir": {}}]
        spec = pod_spec(main, self.at_home, **of_database(volumes=volumes, serviceAccountName=NAME))
        self.home.apply(workload("Deployment", NAME, spec), redis(3))
        pods = self.at_milan(REDIS, 3)
        self.at_rome(NAME)
        wanted = dict.fromkeys(pods, 1.0)
        eventually("all are up", lambda: self.values('up{node="liqo-milan"}') == wanted, LONG)
        addresses = {f"{pod['status']['podIP']}:{EXPORTER_PORT}" for pod in pods.values()}
        self.assertEqual({one["metric"]["instance"] for one in self.query("up")}, addresses)

    def test_02_what_they_say(self) -> None:
        """The metrics are those of the servers: what is stored in one of them is counted there."""
        name = sorted(live_pods(self.home, REDIS))[0]
        self.run_in(name, "sh", "-c", "for i in 1 2 3 4 5 6 7; do redis-cli set key:$i x; done", timeout=60)
        wanted = {pod: 7.0 if pod == name else 0.0 for pod in live_pods(self.home, REDIS)}
        eventually("the keys are counted", lambda: self.values("redis_db_keys{db='db0'}") == wanted, LONG)
        (key,) = self.query(f'redis_commands_total{{cmd="set", pod="{name}"}}')
        self.assertEqual(float(key["value"][1]), 7.0)

    def test_03_scaled(self) -> None:
        """Targets come and go with the pods."""
        self.home.kubectl("scale", "-n", NAMESPACE, f"deployment/{REDIS}", "--replicas=5")
        pods = self.at_milan(REDIS, 5)
        eventually("five are up", lambda: self.values("up") == dict.fromkeys(pods, 1.0), LONG)
        self.home.kubectl("scale", "-n", NAMESPACE, f"deployment/{REDIS}", "--replicas=1")
        pods = self.at_milan(REDIS, 1)
        eventually("one is up", lambda: self.values("up") == dict.fromkeys(pods, 1.0), LONG)

    def test_04_an_ingress_controller_there(self) -> None:
        """A controller that runs offloaded, with home's API server as its source, is scraped like any other pod."""
        made = ingress.controller(VIRTUAL)
        main = made["spec"]["template"]["spec"]["containers"][0]
        main["ports"].append({"name": "metrics", "containerPort": ingress.METRICS})
        made["spec"]["template"]["metadata"]["labels"]["scraped"] = "yes"
        self.home.apply(*ingress.rights(), traffic.web(1), made)
        self.serve(traffic.WEB, traffic.PORT)
        self.home.apply(ingress.ingress(traffic.WEB, "shop.example.com", traffic.WEB, traffic.PORT))
        self.at_milan(traffic.WEB)
        (pod,) = self.at_milan(ingress.NAME).values()
        url = f"http://{pod['status']['podIP']}:{ingress.PORT}/"
        self.home.apply(traffic.load("visitor", url, self.at_home, host="shop.example.com", clients=2))
        self.at_rome("visitor")
        count = partial(self.query, 'sum(skipper_serve_host_count{pod=~"skipper.*"})')
        eventually("its requests are counted", lambda: any(float(one["value"][1]) > 20 for one in count()), LONG)
