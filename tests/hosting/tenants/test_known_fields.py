"""Fields of borrowers' objects that nobody has judged, and ports that nobody may have."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.hosting.tenants.test_policies import BORROWERS, asked, claim, granted, ingress, service


def refused(new: dict[str, Any]) -> list[str]:
    """Return why an ingress is refused where a host is granted."""
    return asked(BORROWERS[0], "ingresses", new, contract=granted(ingress_hosts=["shop.example"]))


class LaterKubernetesTests(SynchronousTestCase):
    """Fields that a later Kubernetes adds."""

    def test_services(self) -> None:
        """What nobody has judged is refused, in a service and in its ports, at first and by a change."""
        port = {"name": "a", "port": 80, "targetPort": "web", "protocol": "TCP", "nodePort": 30080}
        port["appProtocol"] = "h2c"
        known: dict[str, Any] = {
            **dict.fromkeys(("clusterIP", "sessionAffinity", "ipFamilyPolicy", "trafficDistribution"), "a"),
            **{key: ["a"] for key in ("clusterIPs", "ipFamilies", "loadBalancerSourceRanges")},
            **dict.fromkeys(("externalTrafficPolicy", "internalTrafficPolicy"), "Local"),
            "selector": {"a": "b"},
            "healthCheckNodePort": 30081,
            "allocateLoadBalancerNodePorts": False,
            "publishNotReadyAddresses": True,
            "sessionAffinityConfig": {"clientIP": {}},
            "ports": [port],
        }
        for user in BORROWERS:
            self.assertEqual(asked(user, "services", service("LoadBalancer", **known)), [])
            for bad in (service(addressesOfOthers=["192.0.2.1"]), service(ports=[{**port, "hostPort": 22}])):
                (reported,) = asked(user, "services", bad)
                self.assertIn("does not know", reported)
                self.assertTrue(asked(user, "services", bad, service()))

    def test_ingresses(self) -> None:
        """Neither an ingress, nor its rules, paths and backends have what nobody has judged."""
        backend = {"service": {"name": "web", "port": {"number": 80}}}
        path = {"path": "/", "pathType": "Exact", "backend": backend}
        rule = {"host": "shop.example", "http": {"paths": [path]}}
        for fine in ({"rules": [rule]}, {"rules": [{"host": "shop.example"}], "ingressClassName": "a"}):
            self.assertEqual(refused(ingress(**fine)), [])
        for bad in (
            {"hosts": ["www.lender.example"]},
            {"rules": [{**rule, "hosts": ["www.lender.example"]}]},
            {"rules": [{**rule, "http": {"paths": [path], "headers": []}}]},
            {"rules": [{**rule, "http": {"paths": [{**path, "rewrite": "/"}]}}]},
            {"rules": [{**rule, "http": {"paths": [{**path, "backend": {"function": "x"}}]}}]},
        ):
            self.assertEqual(len(refused(ingress(**bad))), 1, bad)

    def test_claims(self) -> None:
        """What nobody has judged is refused."""
        for user in BORROWERS:
            fine = claim(accessModes=["ReadWriteOnce"], volumeMode="Block", resources={}, dataSource={"kind": "X"})
            self.assertEqual(asked(user, "persistentvolumeclaims", fine), [])
            (reported,) = asked(user, "persistentvolumeclaims", claim(volumeOfOthers="pv-1"))
            self.assertIn("does not know", reported)


class PortsTests(SynchronousTestCase):
    """Ports of load balancers."""

    def test_ports_of_nodes(self) -> None:
        """Where the nodes themselves are the load balancers, as with ServiceLB of K3s, no port of theirs is taken."""
        for port in (22, 179, 2379, 2380, 5871, 5872, 5873, 5875, 6443, 8472, 9345, 10250, 10256, 10257, 10259, 51820):
            balanced = service("LoadBalancer", ports=[{"port": 80}, {"port": port, "protocol": "UDP"}])
            for user in BORROWERS:
                (reported,) = asked(user, "services", balanced)
                self.assertIn("reserved-ports", reported)
                self.assertTrue(asked(user, "services", balanced, service("LoadBalancer", ports=[{"port": 80}])))
            self.assertEqual(asked(BORROWERS[0], "services", balanced, contract=granted(reserved_ports=[1])), [])
            for kind in ("ClusterIP", "NodePort"):
                self.assertEqual(asked(BORROWERS[0], "services", service(kind, ports=[{"port": port}])), [])
        for port in (53, 80, 443, 5432, 8080, 30000):
            self.assertEqual(asked(BORROWERS[0], "services", service("LoadBalancer", ports=[{"port": port}])), [])
