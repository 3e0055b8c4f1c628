"""What a lender's offer says beside amounts, on two real clusters: for how long, which classes, which accounts."""

from __future__ import annotations

import base64
import itertools
import json
import time
from functools import partial
from typing import Any, Final

from liqod.kubelet.pods.status import OFFLOADED_CONDITION
from liqod.model.timestamps import parse_rfc3339
from tests.real.manifests import pod
from tests.real.path import NAMESPACE, advertisement, condition, enabled_namespace, eventually, node_ready, peer_of
from tests.real.steps import SETTINGS, VIRTUAL, Steps

TTL: Final = 30
RECEIPTS: Final = 3
"""Changes of the recorded date that are waited for: it is written at every second renewal."""
CLASS, OTHER = "example.com/vip", "example.com/spare"
SHARING: Final = f'percentage = 100\nttl = {TTL}\nload-balancer-classes = ["{CLASS}", "{OTHER}"]'
GRANTING: Final = '\nservice-accounts = ["default"]\n' + SETTINGS.replace("percentage = 100", SHARING)
ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


class OfferTests(Steps):
    """Steps on one pair, where rome borrows from milan."""

    configuration = GRANTING

    def offer(self) -> dict[str, Any]:
        """Return milan's offer as rome has recorded it."""
        return advertisement(self.home, peer_of(self.home, "milan")["metadata"]["name"])

    def received(self) -> float:
        """Return when milan's offer was received last, as rome has recorded it."""
        date = parse_rfc3339(self.offer()["status"]["receivedAt"])
        assert date is not None
        return date.timestamp()

    def test_01_renewed_by_its_time_to_live(self) -> None:
        """An offer of which nothing changes is sent every third of its time, and only the date of it changes."""
        self.peer_up()
        before, dates = self.offer(), [self.received()]
        while len(dates) <= RECEIPTS:
            latest = eventually("the offer is renewed", lambda: max(self.received() - dates[-1], 0.0), TTL + 15)
            dates.append(dates[-1] + latest)
        steps = [later - sooner for sooner, later in itertools.pairwise(dates)]
        self.assertLess(max(steps), TTL, "before it expires")
        after = self.offer()
        self.assertEqual(after["spec"], before["spec"])
        self.assertEqual((after["status"]["phase"], after["spec"]["timeToLive"]), ("Accepted", TTL))

    def test_02_expired_without(self) -> None:
        """Without renewals it expires, and is in force again as soon as the lender is back."""
        self.milan.kill()
        eventually("the offer expires", lambda: self.offer()["status"]["phase"] == "Expired", TTL + 60)
        self.milan.start()
        eventually("it is accepted again", lambda: self.offer()["status"]["phase"] == "Accepted")
        eventually("the virtual node is Ready", partial(node_ready, self.home))

    def test_03_classes_of_load_balancers(self) -> None:
        """A service gets the first class of the offer; where a namespace allows another one, it gets that."""
        self.home.apply(enabled_namespace())
        self.make("first")
        self.runs("first")
        self.home.apply(self._balanced("vip"))
        eventually("the service is at milan", lambda: self.there("service", "vip"))
        self.assertEqual(self.there("service", "vip")["spec"]["loadBalancerClass"], CLASS)
        record = {
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "NamespaceOffloading",
            "metadata": {"name": "offloading", "namespace": NAMESPACE},
            "spec": {"loadBalancerClasses": [OTHER]},
        }
        self.home.apply(record, self._balanced("spare"))
        eventually("the service is at milan", lambda: self.there("service", "spare"))
        self.assertEqual(self.there("service", "spare")["spec"]["loadBalancerClass"], OTHER)
        self.assertEqual(self.there("service", "vip")["spec"]["loadBalancerClass"], CLASS)

    def test_04_a_class_that_vanishes(self) -> None:
        """The service keeps its class and goes on; an event at home says that it is no longer offered."""
        before = self.there("service", "vip")
        text = self.milan.config.read_text()
        self.milan.config.write_text(text.replace(f'["{CLASS}", "{OTHER}"]', f'["{OTHER}"]'))
        self.milan.stop()
        self.milan.start()
        eventually(
            "the offer has one class", lambda: self.offer()["spec"]["offer"]["loadBalancerClasses"] == [OTHER], 180
        )
        self.event("vip", "ClassNotOffered", f"no longer offers the class {CLASS}")
        after = self.there("service", "vip")
        self.assertEqual((after["metadata"]["uid"], after["spec"]), (before["metadata"]["uid"], before["spec"]))
        self.milan.config.write_text(text)
        self.milan.stop()
        self.milan.start()
        self.drop("service/vip", "service/spare", "namespaceoffloading/offloading")

    def event(self, name: str, reason: str, words: str) -> None:
        """Wait for an event about an object at home."""
        selector = f"--field-selector=involvedObject.name={name},reason={reason}"

        def said() -> bool:
            events = self.home.get("events", "-n", NAMESPACE, selector)["items"]
            return any(words in one["message"] for one in events)

        eventually(f"{name} has an event {reason}", said)

    def test_05_an_account_of_the_lender(self) -> None:
        """A pod that asks for it runs as the granted account of its namespace at milan, with that cluster's token."""
        self.home.apply(self._asking("reader", "default"))
        self.runs("reader")
        remote = self.remote()
        found = {
            name: self.lender.kubectl("exec", "-n", remote, "reader", "--", "cat", f"{ACCOUNT}/{name}")
            for name in ("token", "namespace", "ca.crt")
        }
        payload = found["token"].split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        self.assertEqual(claims["sub"], f"system:serviceaccount:{remote}:default")
        self.assertEqual(claims["kubernetes.io"]["pod"]["uid"], self.there("pod", "reader")["metadata"]["uid"])
        self.assertEqual(found["namespace"], remote)
        self.assertEqual(found["ca.crt"].strip(), (self.lender.directory / "ca.crt").read_text().strip())
        self.assertTrue(self.is_absent(self.lender, "secret", "reader.liqo-token", remote))

    def test_06_an_account_that_is_not_granted(self) -> None:
        """A pod that asks for another account stays at home, and says which account and which setting of milan's."""
        self.home.apply(self._asking("thief", "admin"))

        def refused() -> dict[str, Any] | None:
            conditions = self.here("pod", "thief")["status"].get("conditions", [])
            said = [one for one in conditions if (one["type"], one["status"]) == (OFFLOADED_CONDITION, "False")]
            return next((one for one in said if one.get("reason") == "InvalidPod"), None)

        words = eventually("the refusal is at the pod", refused)["message"]
        self.assertIn("service account admin", words)
        self.assertIn("[hosting] service-accounts", words)
        self.assertEqual(self.here("pod", "thief")["status"]["phase"], "Pending")
        self.assertTrue(self.is_absent(self.lender, "pod", "thief", self.remote()))
        self.drop("pod/thief", "pod/reader", "pod/first")

    def test_07_what_is_created_is_said(self) -> None:
        """At milan each ShadowPod has an event that its pod was created; at home the summary has when it began."""
        self.make("created")
        self.runs("created")
        selector = "--field-selector=involvedObject.name=created,reason=CreatedPod"
        events = partial(self.lender.get, "events", "-n", self.remote(), selector)
        eventually("the event is there", lambda: [one["type"] for one in events()["items"]] == ["Normal"])
        node = node_ready(self.home)
        assert node is not None
        self.assertEqual(condition(node, "Ready"), "True")
        path = f"/api/v1/nodes/{node['metadata']['name']}/proxy/stats/summary"
        summary = json.loads(self.home.kubectl("get", f"--raw={path}"))
        began = parse_rfc3339(summary["node"]["startTime"])
        assert began is not None
        self.assertLess(began.timestamp(), time.time())
        self.drop("pod/created")

    def _balanced(self, name: str) -> dict[str, Any]:
        """Return a service with a load balancer, of a class that only home has."""
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "type": "LoadBalancer",
                "loadBalancerClass": "example.com/mine",
                "selector": {"app": name},
                "ports": [{"port": 80}],
            },
        }

    def _asking(self, name: str, account: str) -> dict[str, Any]:
        """Return a pod that asks for a token of an account of the lender."""
        script = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"]
        body = pod(name, script, namespace=NAMESPACE, nodeSelector=VIRTUAL)
        body["metadata"]["annotations"] = {
            "liqo.io/api-server-support": "remote",
            "liqo.io/remote-service-account-name": account,
        }
        return body
