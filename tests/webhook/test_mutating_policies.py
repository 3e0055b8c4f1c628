"""What holds of the admission policies for pods without an API server; the rest is shown on real ones."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from kubesandbox.store.patch import json_patch as apply
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.objects.node_selector import NodeRequirement, Term
from liqod.model.records.offloading import BOTH, LOCAL, REMOTE, OffloadingPolicy
from liqod.webhook import mutating_policies, placement
from liqod.webhook.review import answer


class OffloadableTests(SynchronousTestCase):
    def test_the_webhook_leaves_it_alone(self) -> None:
        """A pod that a policy made tolerant is tolerant to the webhook too, in another form than its own."""
        pod = {"spec": {"tolerations": [dict(mutating_policies.TOLERATION)]}}
        for strategy in (BOTH, REMOTE):
            paths = [one["path"] for one in placement.mutations(pod, OffloadingPolicy(strategy))]
            self.assertEqual([path for path in paths if "tolerations" in path], [])
        self.assertNotEqual(mutating_policies.TOLERATION, placement.TOLERATION)

    def test_the_webhooks_answer_is_the_same_after_a_policy(self) -> None:
        """A pod that a policy made tolerant comes out of the webhook as one that no policy has seen."""
        own = {"key": "gpu", "operator": "Exists"}
        held = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
        for strategy in (LOCAL, REMOTE, BOTH):
            for terms in (None, (Term(match_expressions=[NodeRequirement(key="zone", operator="In", values=["a"])]),)):
                for given in ([], [own], [own, {**held, "tolerationSeconds": 300}]):
                    policy = OffloadingPolicy(strategy, terms)
                    made = [
                        self.reviewed([*given, *more], policy) for more in ([], [dict(mutating_policies.TOLERATION)])
                    ]
                    self.assertEqual(made[0], made[1], (strategy, terms, given))
                    self.assertNotIn(mutating_policies.TOLERATION, made[1]["tolerations"])

    def reviewed(self, tolerations: list[dict[str, Any]], policy: OffloadingPolicy) -> dict[str, Any]:
        """Return the spec of a pod after a review; with one after, which has nothing to add."""
        spec: dict[str, Any] = {"containers": [], "tolerations": tolerations}
        request = {"uid": "1", "kind": {"kind": "Pod", "version": "v1"}, "operation": "CREATE"}
        for _ in range(2):
            review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
            asked = msgspec.json.encode({**review, "request": {**request, "object": {"spec": spec}}})
            response = msgspec.json.decode(answer(asked, lambda _: policy, 60.0))["response"]
            patch = msgspec.json.decode(base64.b64decode(response.get("patch", "W10=")))
            last, spec = spec, apply({"spec": spec}, patch)["spec"]
        self.assertEqual(spec, last)
        return spec

    def test_right_in_either_order(self) -> None:
        """The policy that takes away is invoked again after the other one, which is invoked once."""
        refined, added = (one["spec"] for one in mutating_policies.policies()[:2])
        self.assertEqual((refined["reinvocationPolicy"], added["reinvocationPolicy"]), ("IfNeeded", "Never"))
        # One whose conditions do not hold the first time would not be invoked again.
        self.assertNotIn("matchConditions", refined)
