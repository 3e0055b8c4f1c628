"""Liveness, the tie-break between sessions, and what pods request."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.ids import ClusterID
from liqod.model.objects import quantity
from liqod.model.objects.meta import Condition, ObjectMeta
from liqod.model.objects.node import Node, NodeSpec, NodeStatus
from liqod.model.objects.pod import Container, PodSpec, Requirements, pod_requests
from liqod.model.records.unpeering import ORDER, Kind, UnpeeringOrder, order_of
from liqod.peering.session.liveness import MISSES, Heartbeat, Liveness, assess_liveness
from liqod.peering.session.tiebreak import RACE, OpenedSession, newcomer_stays

A, B = ClusterID("a"), ClusterID("b")


class HeartbeatTests(SynchronousTestCase):
    """Beats of a session."""

    def test_three_silent_beats_end_it(self) -> None:
        """The first beat after a sign of life forgives; the third silent one in a row does not."""
        heartbeat = Heartbeat().beat()
        for _ in range(MISSES):
            self.assertFalse(heartbeat.dead)
            heartbeat = heartbeat.beat()
        self.assertTrue(heartbeat.dead)

    def test_a_sign_of_life_starts_the_count_again(self) -> None:
        """Hearing anything at all makes the session as good as new."""
        self.assertEqual(Heartbeat(2, False).note_activity(), Heartbeat())

    @given(st.lists(st.booleans()))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_it_is_dead_only_after_three_in_a_row(self, received: list[bool]) -> None:
        """Whatever the sequence, dead means that nothing came during the last three beats."""
        heartbeat = Heartbeat()
        for n, was_active in enumerate(received):
            heartbeat = (heartbeat.note_activity() if was_active else heartbeat).beat()
            if heartbeat.dead:
                self.assertFalse(any(received[max(0, n - MISSES + 1) : n + 1]))


class LivenessTests(SynchronousTestCase):
    """How a peer stands."""

    def test_broken_then_suspect_then_lost(self) -> None:
        """Two intervals of grace, then Suspect until the offer expires, then Lost."""
        for now, standing, until in (
            (5.0, Liveness.ALIVE, 20.0),
            (20.0, Liveness.SUSPECT, 100.0),
            (100.0, Liveness.LOST, None),
        ):
            seen = assess_liveness(now, connected=False, broken_since=0.0, interval=10.0, expires=100.0)
            self.assertEqual((seen.standing, seen.until), (standing, until))

    def test_without_an_offer_a_peer_is_never_lost(self) -> None:
        """Nothing expires where nothing was offered."""
        seen = assess_liveness(1e9, connected=False, broken_since=0.0, interval=10.0, expires=None)
        self.assertEqual(seen.standing, Liveness.SUSPECT)

    def test_a_session_makes_it_alive_whatever_was_before(self) -> None:
        """An open session is alive even when an offer has expired; one without answers is closed."""
        seen = assess_liveness(1e9, connected=True, broken_since=0.0, interval=10.0, expires=1.0)
        self.assertEqual(seen.standing, Liveness.ALIVE)


class TieBreakTests(SynchronousTestCase):
    """Two sessions with one peer."""

    @given(st.booleans(), st.booleans())
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_both_sides_choose_the_same_session(self, first_by_a: bool, seen_first_by_b: bool) -> None:
        """Whichever session either side sees first, both keep the one that the smaller ID opened."""
        kept = []
        for me, peer, order in ((A, B, first_by_a), (B, A, seen_first_by_b)):
            existing = OpenedSession(by_us=order == (me == A), peer_epoch=1)
            newcomer = OpenedSession(by_us=not existing.by_us, peer_epoch=1)
            stays = newcomer if newcomer_stays(existing, newcomer, me, peer) else existing
            kept.append(stays.by_us == (me == A))
        self.assertEqual(kept, [True, True])

    def test_a_session_in_use_is_not_replaced_after_the_race(self) -> None:
        """Outside the window the existing session stays, unless it is suspect or from an earlier life of the peer."""
        old = OpenedSession(by_us=False, peer_epoch=5, age=RACE + 1)
        self.assertFalse(newcomer_stays(old, OpenedSession(by_us=True, peer_epoch=5), A, B))
        self.assertTrue(newcomer_stays(old, OpenedSession(by_us=True, peer_epoch=6), A, B))
        self.assertFalse(newcomer_stays(old, OpenedSession(by_us=True, peer_epoch=4), A, B))
        suspect = OpenedSession(by_us=False, peer_epoch=5, age=RACE + 1, suspect=True)
        self.assertTrue(newcomer_stays(suspect, OpenedSession(by_us=True, peer_epoch=5), A, B))

    def test_one_that_dials_again_has_lost_its_session(self) -> None:
        """A second session from the same side replaces the first, at any age."""
        old = OpenedSession(by_us=False, peer_epoch=5, age=1000)
        self.assertTrue(newcomer_stays(old, OpenedSession(by_us=False, peer_epoch=5), A, B))

    def test_the_first_session_always_stays(self) -> None:
        """With nothing to compare there is nothing to break."""
        self.assertTrue(newcomer_stays(None, OpenedSession(by_us=False, peer_epoch=0), A, B))


def container(restart_policy: str = "", **requests: str) -> Container:
    return Container(resources=Requirements(requests=dict(requests)), restart_policy=restart_policy)


class PodRequestTests(SynchronousTestCase):
    """What a pod occupies."""

    def test_containers_init_containers_sidecars_and_overhead(self) -> None:
        """max(containers + sidecars, init steps beside earlier sidecars) + overhead, and one pod."""
        spec = PodSpec(
            containers=[container(cpu="1", memory="1Gi"), container(cpu="500m")],
            init_containers=[container("Always", cpu="200m"), container(cpu="3", memory="100Mi")],
            overhead={"cpu": "50m"},
        )
        self.assertEqual(pod_requests(spec), quantity.parse_all({"cpu": "3250m", "memory": "1Gi", "pods": "1"}))

    def test_what_the_pod_requests_as_a_whole(self) -> None:
        """It takes the place of what the containers request together, by resource; overhead is added."""
        spec = PodSpec(
            containers=[container(cpu="1", memory="1Gi")],
            overhead={"cpu": "50m"},
            resources=Requirements(requests={"cpu": "4"}),
        )
        self.assertEqual(pod_requests(spec), quantity.parse_all({"cpu": "4050m", "memory": "1Gi", "pods": "1"}))

    def test_numbers_count_like_texts(self) -> None:
        """A manifest may say cpu: 2 without quotes."""
        spec = PodSpec(containers=[Container(resources=Requirements(requests={"cpu": 2, "memory": 0.5}))])
        self.assertEqual(pod_requests(spec), quantity.parse_all({"cpu": "2", "memory": "500m", "pods": "1"}))


class NodeTests(SynchronousTestCase):
    """Which nodes count."""

    def test_only_real_ready_schedulable_nodes_are_lendable(self) -> None:
        """Virtual, cordoned, unready, silent and leaving nodes are not."""
        ready = NodeStatus(conditions=[Condition(type="Ready", status="True")])
        self.assertTrue(Node(status=ready).lendable)
        for node in (
            Node(status=ready, metadata=ObjectMeta(labels={"liqo.io/type": "virtual-node"})),
            Node(status=ready, spec=NodeSpec(unschedulable=True)),
            Node(status=ready, metadata=ObjectMeta(deletion_timestamp="2026-01-01T00:00:00Z")),
            Node(status=NodeStatus(conditions=[Condition(type="Ready", status="Unknown")])),
            Node(),
        ):
            self.assertFalse(node.lendable)


class OrderTests(SynchronousTestCase):
    """How a peering is to end, as a record says it."""

    @given(st.one_of(st.floats(0, 3600), st.sampled_from(["dead", "by-peer", "ended"])))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_what_is_ordered_is_what_is_read(self, wanted: float | Kind) -> None:
        """An order survives its annotation, its seconds up to what six digits tell."""
        order = UnpeeringOrder("asked", wanted) if isinstance(wanted, float) else UnpeeringOrder(wanted)
        found = order_of({ORDER: order.render()})
        self.assertEqual(found.kind, order.kind)
        self.assertLess(abs(found.patience - order.patience), 0.01)

    def test_nonsense_means_the_ordinary_way(self) -> None:
        """Whatever else stands there, the peer has its usual time."""
        for text in ("", "soon", "-1", "nan", "1e9"):
            self.assertEqual(order_of({ORDER: text}), UnpeeringOrder())

    def test_only_a_peer_with_a_session_has_all_the_time(self) -> None:
        """One that is away has ten seconds, a dead one none."""
        self.assertEqual([UnpeeringOrder().wait(connected=there) for there in (True, False)], [60.0, 10.0])
        self.assertEqual(UnpeeringOrder("asked", 3).wait(connected=False), 3.0)
        self.assertEqual(UnpeeringOrder("dead").wait(connected=True), 0.0)
