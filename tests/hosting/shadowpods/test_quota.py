"""What pods ask for, and whether it is left."""

from __future__ import annotations

from fractions import Fraction

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.shadowpods.quota import resource_requests
from liqod.hosting.shadowpods.quota.ledger import (
    MOST_MISFITS,
    MOST_WAITING,
    Ledger,
    WaitingList,
    WaitingShadowPod,
    fitting,
    shortage,
)
from liqod.hosting.views import PodSpec
from liqod.model.ids import Key
from liqod.model.objects import quantity


def spec(**fields: object) -> PodSpec:
    return msgspec.convert(fields, PodSpec)


def container(name: str, cpu: str = "", limit: str = "", always: bool = False) -> dict[str, object]:
    resources = {"requests": {"cpu": cpu} if cpu else {}, "limits": {"cpu": limit} if limit else {}}
    return {"name": name, "resources": resources, **({"restartPolicy": "Always"} if always else {})}


class RequestsTests(SynchronousTestCase):
    def cpu(self, **fields: object) -> Fraction:
        return resource_requests.of_pod(spec(**fields)).get("cpu", Fraction(0))

    def test_containers_are_added(self) -> None:
        """The containers of a pod run together: their requests are added."""
        self.assertEqual(self.cpu(containers=[container("a", "1"), container("b", "500m")]), Fraction(3, 2))

    def test_init_containers_run_one_by_one(self) -> None:
        """Of ordinary init containers only the largest counts, and only when it passes the sum of the containers."""
        inits = [container("i", "2"), container("j", "3")]
        self.assertEqual(self.cpu(containers=[container("a", "1")], initContainers=inits), 3)
        self.assertEqual(self.cpu(containers=[container("a", "4")], initContainers=inits), 4)

    def test_sidecars_run_on(self) -> None:
        """A restartable init container counts beside the containers, and beside the init containers after it."""
        inits = [container("side", "1", always=True), container("i", "3")]
        self.assertEqual(self.cpu(containers=[container("a", "1")], initContainers=inits), 4)
        self.assertEqual(self.cpu(containers=[container("a", "5")], initContainers=inits), 6)

    def test_a_sidecar_after_an_init_container_does_not_count_beside_it(self) -> None:
        """The order of init containers decides which of them run at the same time."""
        inits = [container("i", "3"), container("side", "1", always=True)]
        self.assertEqual(self.cpu(containers=[container("a", "1")], initContainers=inits), 3)

    def test_limits_without_requests_are_requests(self) -> None:
        """A borrower cannot pass the quota by stating limits only: the API server makes requests of them."""
        self.assertEqual(self.cpu(containers=[container("a", limit="2")]), 2)
        self.assertEqual(self.cpu(containers=[container("a", "1", limit="2")]), 1)

    def test_overhead_and_pod_level_resources_count(self) -> None:
        """Overhead comes on top; resources of the pod as a whole count where they are larger."""
        asked = resource_requests.of_pod(
            spec(
                containers=[container("a", "1")],
                overhead={"cpu": "250m"},
                resources={"requests": {"memory": "1Gi", "cpu": "2"}},
            )
        )
        self.assertEqual(asked, {"cpu": Fraction(9, 4), "memory": 2**30, "pods": 1})

    def test_hostile_quantities_are_named(self) -> None:
        """Negative, infinite and meaningless quantities are refused with their place."""
        for text in ("-1", "1e99", "NaN", "Infinity", "", "1 Gi", 1e300):
            with self.assertRaises(ValueError) as caught:
                resource_requests.of_pod(spec(containers=[{"name": "a", "resources": {"requests": {"memory": text}}}]))
            self.assertIn("spec.containers[a].resources.requests", str(caught.exception))


class ShortageTests(SynchronousTestCase):
    def say(self, wanted: dict[str, str], used: dict[str, str], offered: dict[str, str]) -> str:
        return shortage(*(quantity.parse_all(part) for part in (wanted, used, offered)))

    def test_it_fits(self) -> None:
        """What is left may be used up to the last bit."""
        self.assertEqual(self.say({"cpu": "500m"}, {"cpu": "3500m"}, {"cpu": "4"}), "")

    def test_too_much(self) -> None:
        """The sentence names what is asked, what is left and what was lent."""
        self.assertEqual(self.say({"cpu": "2"}, {"cpu": "3500m"}, {"cpu": "4"}), "asks cpu 2, 500m left of 4")

    def test_an_offer_that_shrank(self) -> None:
        """Where more is used than is lent now, nothing is left; it is never said to be negative."""
        self.assertEqual(self.say({"cpu": "1"}, {"cpu": "8"}, {"cpu": "4"}), "asks cpu 1, 0 left of 4")

    def test_a_resource_that_is_not_lent(self) -> None:
        """A resource that the offer does not name is not lent at all."""
        self.assertEqual(
            self.say({"nvidia.com/gpu": "1"}, {}, {"cpu": "4"}), "asks nvidia.com/gpu 1, none of it is lent"
        )

    def test_pods_are_limited_only_when_offered(self) -> None:
        """The number of pods counts only against an offer that names it."""
        self.assertEqual(self.say({"pods": "1"}, {"pods": "9"}, {"cpu": "4"}), "")
        self.assertEqual(self.say({"pods": "1"}, {"pods": "9"}, {"pods": "9"}), "asks pods 1, 0 left of 9")


def waiting(name: str, created: str, cpu: int) -> WaitingShadowPod:
    return WaitingShadowPod(created, Key("ns", name), {"cpu": Fraction(cpu)}, None)


class FittingTests(SynchronousTestCase):
    def test_oldest_first(self) -> None:
        """The oldest of the refused gets the room, whatever their names and the order they are given in."""
        entries = [waiting("a", "2020-01-02", 2), waiting("z", "2020-01-01", 2)]
        self.assertEqual(fitting(entries, {}, {"cpu": Fraction(3)}), [Key("ns", "z")])

    def test_a_large_one_does_not_hold_up_smaller_ones(self) -> None:
        """A pod that does not fit leaves its room to younger ones that do."""
        entries = [waiting("a", "1", 5), waiting("b", "2", 1), waiting("c", "3", 1)]
        self.assertEqual(fitting(entries, {"cpu": Fraction(2)}, {"cpu": Fraction(3)}), [Key("ns", "b")])

    @given(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12), st.integers(0, 9), st.integers(0, 30)
    )
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_never_more_than_offered(self, pods: list[tuple[int, int]], used: int, offered: int) -> None:
        """Those found to fit do fit together, on top of what is used."""
        entries = [waiting(str(n), str(created), cpu) for n, (created, cpu) in enumerate(pods)]
        asked = {entry.key: entry.wanted["cpu"] for entry in entries}
        found = sum(
            (asked[key] for key in fitting(entries, {"cpu": Fraction(used)}, {"cpu": Fraction(offered)})), Fraction(0)
        )
        self.assertTrue(found == 0 or used + found <= offered)

    def test_a_crowd_of_one_size(self) -> None:
        """However many of one size wait in front, the one that is behind them is seen."""
        crowd = [waiting(f"a{n}", "1", 9) for n in range(2 * MOST_MISFITS)]
        self.assertEqual(fitting([*crowd, waiting("z", "2", 1)], {}, {"cpu": Fraction(3)}), [Key("ns", "z")])

    def test_a_crowd_of_many_sizes(self) -> None:
        """Who waits with ever other sizes is not judged without end: a look costs what a bounded number of them do."""

        class Counted(dict[str, Fraction]):
            looks = 0

            def __contains__(self, key: object) -> bool:
                Counted.looks += 1
                return super().__contains__(key)

        crowd = [waiting(f"a{n}", "1", 9 + n) for n in range(MOST_WAITING)]
        self.assertEqual(fitting(crowd, {}, Counted(cpu=Fraction(3))), [])
        all_of_them, Counted.looks = Counted.looks, 0
        self.assertEqual(fitting(crowd[:MOST_MISFITS], {}, Counted(cpu=Fraction(3))), [])
        self.assertGreater(Counted.looks, 0)
        self.assertEqual(all_of_them, Counted.looks)

    def test_those_that_wait_are_bounded(self) -> None:
        """Beyond a number of them, one more is not remembered; those known already are kept up to date."""
        kept = WaitingList()
        for n in range(MOST_WAITING + 5):
            kept.add("t", waiting(f"p{n}", "1", 1))
        self.assertEqual(len(kept.of("t")), MOST_WAITING)
        before = kept.add("t", waiting("p0", "1", 7))
        assert before is not None
        self.assertEqual(before.wanted["cpu"], 1)
        self.assertEqual({entry.key.name: entry.wanted["cpu"] for entry in kept.of("t")}["p0"], 7)

    def test_removed(self) -> None:
        """What runs waits no more, for whichever tenant it waited; a tenant without entries is forgotten."""
        kept = WaitingList()
        kept.add("a", waiting("p", "1", 1))
        self.assertIsNone(kept.add("b", waiting("p", "1", 1)))
        self.assertEqual((len(kept.of("a")), len(kept.of("b"))), (0, 1))
        kept.remove(Key("ns", "p"))
        kept.remove(Key("ns", "p"))
        self.assertEqual(len(kept.of("b")), 0)


class LedgerTests(SynchronousTestCase):
    @given(
        st.dictionaries(st.integers(0, 5), st.tuples(st.sampled_from("ab"), st.integers(1, 9)), max_size=6),
        st.sampled_from("ab"),
        st.integers(0, 5),
    )
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_what_others_use_is_the_sum_of_the_other_pods(
        self, pods: dict[int, tuple[str, int]], tenant: str, one: int
    ) -> None:
        """A pod is left out of its own tenant's sum, and of nobody else's."""
        ledger = Ledger()
        for number, (owner, cpu) in pods.items():
            ledger.charge(Key("n", str(number)), owner, {"cpu": Fraction(cpu)})
        others = sum(cpu for number, (owner, cpu) in pods.items() if owner == tenant and number != one)
        self.assertEqual(ledger.used_without(tenant, Key("n", str(one))).get("cpu", 0), others)

    def test_charge_replaces(self) -> None:
        """A pod counts once, with the newest of what it asks."""
        ledger = Ledger()
        ledger.charge(Key("n", "p"), "t", {"cpu": Fraction(1)})
        ledger.charge(Key("n", "p"), "t", {"cpu": Fraction(2)})
        self.assertEqual(ledger.used("t"), {"cpu": 2})
        self.assertEqual(ledger.used_without("t", Key("n", "p")), {"cpu": 0})
        self.assertEqual(ledger.used_without("other", Key("n", "p")), {})
        self.assertEqual(ledger.release(Key("n", "p")), "t")
        self.assertEqual(ledger.release(Key("n", "p")), "")
        self.assertEqual(ledger.used("t"), {})

    @given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("ab"), st.integers(-1, 8))))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_totals_are_sums(self, steps: list[tuple[int, str, int]]) -> None:
        """After any sequence of charges and releases the total is the sum of what is charged."""
        ledger, model = Ledger(), dict[Key, tuple[str, int]]()
        for name, tenant, cpu in steps:
            key = Key("n", str(name))
            if cpu < 0:
                ledger.release(key)
                model.pop(key, None)
            else:
                ledger.charge(key, tenant, {"cpu": Fraction(cpu), "pods": Fraction(1)})
                model[key] = (tenant, cpu)
        for tenant in "ab":
            held = [cpu for owner, cpu in model.values() if owner == tenant]
            self.assertEqual(ledger.used(tenant).get("cpu", 0), sum(held))
            self.assertEqual(ledger.used(tenant).get("pods", 0), len(held))

    @given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(1, 6)), max_size=40), st.integers(0, 12))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_admission_never_passes_the_offer(self, steps: list[tuple[bool, int, int]], offered: int) -> None:
        """Pods admitted one after the other, in any mix with pods that end, never use more than was offered."""
        ledger = Ledger()
        for ends, name, cpu in steps:
            key, asked = Key("n", str(name)), {"cpu": Fraction(cpu)}
            if ends:
                ledger.release(key)
            elif not shortage(asked, ledger.used_without("t", key), {"cpu": Fraction(offered)}):
                ledger.charge(key, "t", asked)
            self.assertLessEqual(ledger.used("t").get("cpu", 0), offered)
