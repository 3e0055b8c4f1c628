"""A tenant's total is held over all of its namespaces, whatever it creates and however late everybody sees it."""

from __future__ import annotations

from random import Random

import attrs
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.tenants.quota.shares import QuotaState, divide

ROUNDS = 12
"""Steps within which a division comes to rest."""


@attrs.define
class Namespace:
    """The quota of a namespace: what was written, what the API server enforces, what is there; what we saw of that."""

    spec: int = 0
    hard: int | None = None
    there: int = 0
    seen: tuple[int | None, int] = (None, 0)

    @property
    def held(self) -> QuotaState:
        hard, used = self.seen
        return QuotaState(self.spec, None if hard is None else hard, None if hard is None else used)

    def create(self, count: int) -> None:
        """The tenant creates as much as the API server lets it."""
        self.there = max(self.there, min(self.there + count, self.hard or 0))


def quota(share: int, used: int | None = 0) -> QuotaState:
    """Return a quota that is enforced."""
    return QuotaState(share, share, used)


def settled(held: dict[str, QuotaState], total: int, most: int, test: SynchronousTestCase) -> dict[str, QuotaState]:
    """Divide until nothing changes, the API server enforcing each step at once."""
    for _ in range(ROUNDS):
        shares = divide(held, total, most)
        if all(share == held[name].spec for name, share in shares.items()):
            return held
        held = {name: attrs.evolve(one, spec=shares[name], hard=shares[name]) for name, one in held.items()}
    test.fail(f"does not come to rest: {held} of {total}, {most} each")
    raise AssertionError


class DivideTests(SynchronousTestCase):
    """Shares of a total."""

    @given(st.integers(0, 60), st.integers(1, 60), st.integers(0, 2**32))
    @example(8, 5, 451717629)  # a share that is not enforced yet and changes again
    @example(44, 31, 44)  # a share below what is used
    def test_a_tenant_with_many_namespaces(self, total: int, most: int, seed: int) -> None:
        """It never has more than its total, though its namespaces come at any time, it creates whatever it is let, and
        counts, quotas and what is known of them are late.
        """
        namespaces, random = list[Namespace](), Random(seed)
        for _ in range(30):
            if len(namespaces) < 6 and random.random() < 0.3:
                namespaces.append(Namespace())
            if random.random() < 0.8:
                held = {str(index): one.held for index, one in enumerate(namespaces)}
                for name, share in divide(held, total, most).items():
                    namespaces[int(name)].spec = int(share)
            for one in namespaces:
                if random.random() < 0.6:
                    one.hard = one.spec
                if random.random() < 0.5:
                    one.create(random.choice((1, 5, 80)))
                elif random.random() < 0.3:
                    one.there = random.randint(0, one.there)
                if random.random() < 0.4:
                    one.seen = one.hard, one.there
            self.assertLessEqual(sum(one.there for one in namespaces), total)
            self.assertLessEqual(max([one.there for one in namespaces], default=0), most)

    @given(
        st.lists(st.tuples(st.integers(0, 40), st.one_of(st.none(), st.integers(0, 40))), max_size=12),
        st.integers(0, 200),
        st.integers(0, 60),
    )
    def test_it_comes_to_rest(self, quotas: list[tuple[int, int | None]], total: int, most: int) -> None:
        """Nothing is written again after a few steps; then each namespace has room while there is any, and what was
        counted in one does not count in another.
        """
        held = {f"n{index}": quota(granted, used) for index, (granted, used) in enumerate(quotas)}
        held = settled(held, total, most, self)
        taken = sum(one.taken for one in held.values())
        self.assertLessEqual(sum(one.held for one in held.values()), max(total, taken))
        left = max(0, total - taken)
        open_ones = [one for one in held.values() if one.taken < min(most, total) and one.used is not None]
        with_room = [one for one in open_ones if one.granted > one.taken]
        if all(one.used is not None for one in held.values()):
            self.assertGreaterEqual(len(with_room), min(left, len(open_ones)))

    def test_few_namespaces_are_as_before(self) -> None:
        """Where the total is enough for all namespaces each has the most that one may have."""
        held = {f"n{index}": QuotaState() for index in range(4)}
        self.assertEqual(set(divide(held, 40, 10).values()), {10})

    def test_a_thousand_namespaces(self) -> None:
        """They have no more together than the total; one that fills its share gets more, a few steps at a time."""
        held = settled({f"n{index}": quota(0) for index in range(1000)}, 5000, 500, self)
        self.assertLessEqual(sum(one.granted for one in held.values()), 5000)
        self.assertGreaterEqual(min(one.granted for one in held.values()), 1)
        for _ in range(12):
            held["n7"] = attrs.evolve(held["n7"], used=held["n7"].granted)
            held = settled(held, 5000, 500, self)
        self.assertEqual(held["n7"].granted, 500)
        self.assertLessEqual(sum(one.held for one in held.values()), 5000)

    def test_a_change_of_use_alone_is_no_write(self) -> None:
        """What others create does not move the share of a namespace that has room."""
        held = settled({f"n{index}": quota(0) for index in range(20)}, 1000, 500, self)
        before = {name: one.granted for name, one in held.items()}
        held["n3"] = attrs.evolve(held["n3"], used=4)
        self.assertEqual(divide(held, 1000, 500), before)

    def test_what_was_more_before_shrinks(self) -> None:
        """Quotas that together allow more than the total, as those of an earlier release did, are made smaller."""
        held = settled({f"n{index}": quota(500, 3) for index in range(100)}, 5000, 500, self)
        self.assertLessEqual(sum(one.granted for one in held.values()), 5000)

    def test_what_is_used_may_be_replaced(self) -> None:
        """A share below what is used, as it was taken away in the same moment, becomes what is used."""
        held = {"a": QuotaState(1, 1, 8), "b": quota(1), "c": quota(1)}
        self.assertEqual(divide(held, 10, 8)["a"], 8)
