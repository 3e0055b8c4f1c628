"""What is done about a reflected object: the table of decisions, the policies, and how often something is written."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import Reflected, ReflectionSettings
from liqod.kube.writing.merge_patch import apply_merge_patch
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.write_limiter import SETTLED, WriteLimiter
from liqod.kubelet.reflection.decide import Create, Delete, Keep, Patch, Skip, decide
from liqod.kubelet.reflection.forge import policy
from liqod.kubelet.reflection.forge.claim import REMOTE_MODES
from liqod.kubelet.reflection.forge.classes import Classes
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, Withheld
from liqod.kubelet.reflection.kinds import (
    CLAIM,
    CONFIGMAP,
    ENDPOINTSLICE,
    INGRESS,
    KINDS,
    SECRET,
    SERVICE,
    Kind,
    listing_of,
)
from liqod.kubelet.reflection.views import Reflectable
from liqod.model.ids import ClusterID, Key
from tests.kubelet.networks import LenderObjects, SimulatedNetwork

CONTEXT = Context(ClusterID("home"), ClusterID("lender"), "liqo-lender")
OURS = {"offloading.liqo.io/origin": "home", "offloading.liqo.io/destination": "lender"}


def thing(view: type[Reflectable], body: dict[str, Any]) -> Reflectable:
    return msgspec.json.decode(msgspec.json.encode(body), type=view)


def home(kind: Kind, **fields: Any) -> Reflectable:
    metadata = {"name": "x", "namespace": "shop", "uid": "h1", **fields.pop("metadata", {})}
    return thing(kind.home_view, {"metadata": metadata, **fields})


def goal_of(kind: Kind, seen: Reflectable, context: Context = CONTEXT) -> DesiredObject | Withheld:
    inputs = ForgeInputs(context)
    return kind.forge(seen, inputs)


def step(kind: Kind, desired: DesiredObject | Withheld | None, there: Reflectable | None) -> Any:
    return decide(kind, desired, there, name="x", namespace="shop-home", context=CONTEXT)


def made(kind: Kind, create: Create, **metadata: Any) -> dict[str, Any]:
    body = msgspec.json.decode(msgspec.json.encode(create.body))
    body["metadata"] |= {"uid": "t1", **metadata}
    return dict(body)


TEXTS = st.dictionaries(st.sampled_from(["a", "b", "c/d", "liqo.io/e"]), st.sampled_from(["", "1", "2"]), max_size=3)
METADATA = st.fixed_dictionaries({"labels": TEXTS, "annotations": TEXTS})
PORTS = st.lists(
    st.fixed_dictionaries(
        {"port": st.integers(1, 3), "name": st.sampled_from(["", "http"])},
        optional={"targetPort": st.sampled_from([1, "http"]), "nodePort": st.just(30000), "appProtocol": st.just("h2")},
    ),
    max_size=2,
)
CONTENTS: dict[Kind, st.SearchStrategy[dict[str, Any]]] = {
    CONFIGMAP: st.fixed_dictionaries({}, optional={"data": TEXTS, "binaryData": TEXTS, "immutable": st.booleans()}),
    SECRET: st.fixed_dictionaries(
        {}, optional={"data": TEXTS, "type": st.sampled_from(["Opaque", "x"]), "immutable": st.booleans()}
    ),
    SERVICE: st.fixed_dictionaries(
        {
            "spec": st.fixed_dictionaries(
                {"ports": PORTS},
                optional={
                    "type": st.sampled_from(["ClusterIP", "NodePort"]),
                    "clusterIP": st.sampled_from(["None", "10.0.0.1"]),
                    "selector": TEXTS,
                    "sessionAffinity": st.sampled_from(["None", "ClientIP"]),
                    "externalIPs": st.just(["192.0.2.1"]),
                    "publishNotReadyAddresses": st.booleans(),
                },
            )
        }
    ),
    INGRESS: st.fixed_dictionaries(
        {"spec": st.fixed_dictionaries({}, optional={"rules": st.just([{"host": "a"}]), "tls": st.just([{}])})}
    ),
    ENDPOINTSLICE: st.fixed_dictionaries(
        {"addressType": st.just("IPv4")},
        optional={
            "endpoints": st.lists(
                st.fixed_dictionaries({"addresses": st.sampled_from([["10.0.0.1"], ["10.0.0.2"]])}), max_size=2
            ),
            "ports": st.lists(st.fixed_dictionaries({"port": st.integers(1, 9)}), max_size=2),
        },
    ),
}


@st.composite
def histories(draw: st.DrawFn) -> tuple[Kind, list[Reflectable]]:
    # Routes take the gateway that is offered (``test_route_forge``).
    kind = draw(st.sampled_from([kind for kind in KINDS if not kind.lasting and not kind.by_offer]))
    states = draw(st.lists(st.tuples(METADATA, CONTENTS[kind]), min_size=1, max_size=3))
    return kind, [home(kind, metadata=metadata, **content) for metadata, content in states]


class DecideTests(SynchronousTestCase):
    """Decisions about config maps; the others go by the same table."""

    def setUp(self) -> None:
        self.desired = goal_of(CONFIGMAP, home(CONFIGMAP, data={"a": "1"}))
        create = step(CONFIGMAP, self.desired, None)
        self.assertIsInstance(create, Create)
        self.body = made(CONFIGMAP, create)

    def there(self, **changes: Any) -> Reflectable:
        return thing(CONFIGMAP.there_view, apply_merge_patch(self.body, changes))

    def test_equal_is_never_written(self) -> None:
        """What is as it should be is kept, also with what others added."""
        self.assertIsInstance(step(CONFIGMAP, self.desired, self.there()), Keep)
        added = self.there(metadata={"labels": {"theirs": "1"}, "annotations": {"theirs": "2"}})
        self.assertIsInstance(step(CONFIGMAP, self.desired, added), Keep)

    def test_differences_are_patched(self) -> None:
        """What differs is patched, key by key, guarded by the UID."""
        found = step(CONFIGMAP, self.desired, self.there(data={"a": "2", "b": "3"}))
        self.assertEqual(found, Patch({"data": {"a": "1", "b": None}, "metadata": {"uid": "t1"}}))

    def test_gone_or_withheld_is_deleted(self) -> None:
        """What is gone at home, or withheld, is deleted at the lender: that very object."""
        for desired in (None, Withheld("so")):
            self.assertEqual(step(CONFIGMAP, desired, self.there()), Delete("t1"))
            self.assertIsInstance(step(CONFIGMAP, desired, None), Keep)

    def test_not_ours(self) -> None:
        """What does not bear both labels is left alone, whatever is wanted."""
        for desired, key in itertools.product((self.desired, None, Withheld("so")), OURS):
            there = self.there(metadata={"labels": {key: "other"}})
            self.assertIsInstance(step(CONFIGMAP, desired, there), Skip)

    def test_on_its_way_out(self) -> None:
        """What is being deleted at the lender is waited for."""
        there = self.there(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
        for desired in (self.desired, None):
            self.assertIsInstance(step(CONFIGMAP, desired, there), Keep)

    def test_immutable(self) -> None:
        """What cannot be changed in place is deleted and made again."""
        self.assertEqual(step(CONFIGMAP, self.desired, self.there(immutable=True)), Delete("t1", again=True))

    def test_idle(self) -> None:
        """A slice without endpoints for the lender is not made, but one that is there is kept up to date."""
        empty, full = (
            goal_of(ENDPOINTSLICE, home(ENDPOINTSLICE, addressType="IPv4", endpoints=endpoints))
            for endpoints in ([], [{"addresses": ["10.0.0.1"]}])
        )
        self.assertIsInstance(step(ENDPOINTSLICE, empty, None), Keep)
        create = step(ENDPOINTSLICE, full, None)
        there = thing(ENDPOINTSLICE.there_view, made(ENDPOINTSLICE, create))
        found = step(ENDPOINTSLICE, empty, there)
        self.assertEqual(found.patch["spec"], {"template": {"endpoints": None}})


class ClaimTests(SynchronousTestCase):
    """Claims at the lender hold data: they are made and may grow, and nothing else is ever done about them here."""

    def desired(self, size: str = "1Gi", uid: str = "h1", **annotations: str) -> DesiredObject:
        spec = {"volumeName": "pvc-1", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        metadata = {"name": "data", "namespace": "shop", "uid": uid, "annotations": annotations}
        body = {"metadata": metadata, "spec": spec}
        inputs = ForgeInputs(CONTEXT, home=LenderObjects(volumes=("pvc-1",), storage=Classes(("x",))))
        desired = CLAIM.forge(thing(CLAIM.home_view, body), inputs)
        assert isinstance(desired, DesiredObject)
        return desired

    def there(self) -> Reflectable:
        return thing(
            CLAIM.there_view,
            apply_merge_patch(made(CLAIM, step(CLAIM, self.desired(), None)), {"spec": {"volumeName": "v"}}),
        )

    def test_access_modes_that_are_wanted_there(self) -> None:
        """The annotation names modes of Kubernetes for the lender; without one that exists the claim's own count."""
        for text, modes in (
            ("", ["ReadWriteOnce"]),
            ("ReadWriteMany", ["ReadWriteMany"]),
            (" ReadWriteMany , ReadOnlyMany", ["ReadWriteMany", "ReadOnlyMany"]),
            ("ReadWriteEverywhere,ReadWriteMany", ["ReadWriteMany"]),
            ("ReadWriteEverywhere", ["ReadWriteOnce"]),
        ):
            create = step(CLAIM, self.desired(**{REMOTE_MODES: text}), None)
            self.assertEqual(made(CLAIM, create)["spec"]["accessModes"], modes, text)

    def test_it_grows(self) -> None:
        """A larger claim is patched in its size alone; the class, once chosen, is not looked at."""
        self.assertIsInstance(step(CLAIM, self.desired(), self.there()), Keep)
        found = step(CLAIM, self.desired("2Gi"), self.there())
        wanted = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}, "metadata": {"uid": "t1"}}
        self.assertEqual(found, Patch(wanted))

    def test_it_never_goes(self) -> None:
        """That a claim is gone at home, or not the lender's any more, deletes no data."""
        for desired in (None, Withheld("so")):
            self.assertIsInstance(step(CLAIM, desired, self.there()), Keep)

    def test_the_data_of_another(self) -> None:
        """The data of an earlier claim of the same name is not given to a new one."""
        self.assertIsInstance(step(CLAIM, self.desired(uid="h2"), self.there()), Skip)


def with_families(families: frozenset[str]) -> Context:
    """Return the place with a lender whose pods have these IP versions."""
    return Context(CONTEXT.home, CONTEXT.lender, CONTEXT.node_name, network=SimulatedNetwork(families=families))


class ConvergenceTests(SynchronousTestCase):
    """Whatever happens at home, one write at a time brings the lender there."""

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(histories())
    def test_follows_any_history(self, history: tuple[Kind, list[Reflectable]]) -> None:
        """After every change at home at most one write (or a replacement) is needed, and then no more."""
        kind, states = history
        there: dict[str, Any] | None = None
        for seen in states:
            desired = goal_of(kind, seen)
            for _ in range(3):
                found = step(kind, desired, None if there is None else thing(kind.there_view, there))
                if isinstance(found, Keep):
                    break
                if isinstance(found, Create):
                    there = made(kind, found)
                elif isinstance(found, Delete):
                    there = None
                else:
                    assert isinstance(found, Patch) and there is not None
                    there = apply_merge_patch(there, msgspec.json.decode(msgspec.json.encode(found.patch)))
            else:
                self.fail(f"it is written again and again: {found}")
            if there is not None and isinstance(desired, DesiredObject):
                fresh = step(kind, desired, None)
                if isinstance(fresh, Create):
                    self.assertEqual(there, made(kind, fresh))

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(histories())
    def test_never_external_addresses(self, history: tuple[Kind, list[Reflectable]]) -> None:
        """No service goes with external addresses or an address of its cluster."""
        kind, states = history
        for seen in states:
            found = step(kind, goal_of(kind, seen), None)
            if kind is SERVICE and isinstance(found, Create):
                self.assertFalse({"externalIPs", "loadBalancerIP", "clusterIPs"} & set(found.body["spec"]))
                self.assertIn(found.body["spec"].get("clusterIP", "None"), ("None",))

    def test_traffic_policy(self) -> None:
        """What a service has only because of its external addresses does not go without them."""
        spec = {"type": "ClusterIP", "externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Cluster"}
        self.assertEqual(
            step(SERVICE, goal_of(SERVICE, home(SERVICE, spec=spec)), None).body["spec"], {"type": "ClusterIP"}
        )
        spec["type"] = "NodePort"
        desired = goal_of(SERVICE, home(SERVICE, spec=spec))
        self.assertEqual(step(SERVICE, desired, None).body["spec"]["externalTrafficPolicy"], "Cluster")

    def test_ip_versions(self) -> None:
        """The first version of a service goes where the lender has it; the lender adds the other one by the policy."""
        four, six, both = frozenset({"IPv4"}), frozenset({"IPv6"}), frozenset({"IPv4", "IPv6"})
        for own, there, wanted in (
            (["IPv6"], both, ["IPv6"]),
            (["IPv6", "IPv4"], both, ["IPv6"]),
            (["IPv4", "IPv6"], both, ["IPv4"]),
            (["IPv4", "IPv6"], four, ["IPv4"]),
            (["IPv6"], four, None),
            (["IPv4"], six, None),
            (["IPv6"], frozenset(), None),
            ([], both, None),
        ):
            spec = {"ipFamilies": own, "ipFamilyPolicy": "PreferDualStack"}
            found = step(SERVICE, goal_of(SERVICE, home(SERVICE, spec=spec), with_families(there)), None)
            self.assertEqual(found.body["spec"].get("ipFamilies"), wanted, (own, there))
            self.assertEqual(found.body["spec"]["ipFamilyPolicy"], "PreferDualStack")

    def test_a_service_of_another_ip_version(self) -> None:
        """Its first version cannot be changed: it is made again; a second one that the lender added is left alone."""
        spec = {"ipFamilies": ["IPv6"], "ipFamilyPolicy": "PreferDualStack"}
        desired = goal_of(SERVICE, home(SERVICE, spec=spec), with_families(frozenset({"IPv4", "IPv6"})))
        there = made(SERVICE, step(SERVICE, desired, None))
        for families, wanted in ((["IPv6", "IPv4"], Keep), (["IPv6"], Keep), (["IPv4", "IPv6"], Delete)):
            there["spec"]["ipFamilies"] = families
            self.assertIsInstance(step(SERVICE, desired, thing(SERVICE.there_view, there)), wanted, f"{families}")
        unknown = goal_of(SERVICE, home(SERVICE, spec=spec))
        self.assertIsInstance(step(SERVICE, unknown, thing(SERVICE.there_view, there)), Keep)

    def test_labels_not_reflected(self) -> None:
        """A label that is excluded from now on is taken off objects that are there, and only that."""
        seen = home(CONFIGMAP, metadata={"labels": {"a": "1", "b": "2"}, "annotations": {"c": "3"}})
        there = made(CONFIGMAP, step(CONFIGMAP, goal_of(CONFIGMAP, seen), None))
        narrower = Context(
            CONTEXT.home,
            CONTEXT.lender,
            CONTEXT.node_name,
            labels_not_reflected=frozenset("b"),
            annotations_not_reflected=frozenset("c"),
        )
        patch = step(CONFIGMAP, goal_of(CONFIGMAP, seen, narrower), thing(CONFIGMAP.there_view, there)).patch
        self.assertEqual(patch["metadata"]["labels"], {"b": None})
        self.assertIsNone(patch["metadata"]["annotations"]["c"])


class PolicyTests(SynchronousTestCase):
    """Who is reflected."""

    def test_listings(self) -> None:
        """A deny list takes all but what is annotated, an allow list nothing but that; "false" is no annotation."""
        skip, allow = "liqo.io/skip-reflection", "liqo.io/allow-reflection"
        cases: list[tuple[dict[str, str], bool, bool]] = [
            ({}, True, False),
            ({skip: "true"}, False, False),
            ({skip: ""}, False, False),
            ({skip: "False"}, True, False),
            ({allow: "true"}, True, True),
            ({allow: "FALSE"}, True, False),
            ({allow: "yes", skip: "yes"}, False, True),
        ]
        for notes, by_deny, by_allow in cases:
            self.assertEqual(not policy.objection(notes, "DenyList"), by_deny, notes)
            self.assertEqual(not policy.objection(notes, "AllowList"), by_allow, notes)

    def test_the_setting_of_a_kind(self) -> None:
        """Each kind goes by its own setting; slices by that of services, claims by none."""
        allow = Reflected("AllowList")
        goes_by = {
            "configmap": ReflectionSettings(configmap=allow),
            "secret": ReflectionSettings(secret=allow),
            "service": ReflectionSettings(service=allow),
            "ingress": ReflectionSettings(ingress=allow),
            "httproute": ReflectionSettings(httproute=allow),
            "grpcroute": ReflectionSettings(grpcroute=allow),
        }
        listed = {
            name: [kind.setting for kind in KINDS if listing_of(kind, one) == "AllowList"]
            for name, one in goes_by.items()
        }
        alone = {name: [name] for name in goes_by}
        self.assertEqual(listed, {**alone, "service": ["service", "endpointslice"]})

    def test_explicit(self) -> None:
        """Annotations on the object itself win where it inherits; both at once are a contradiction that is said."""
        self.assertIsNone(policy.explicit({}))
        self.assertEqual(policy.explicit({"liqo.io/allow-reflection": "true"}), "")
        self.assertEqual(policy.explicit({"liqo.io/skip-reflection": "true"}), policy.SKIPPED)
        both = {"liqo.io/skip-reflection": "true", "liqo.io/allow-reflection": "true"}
        self.assertEqual(policy.explicit(both), policy.BOTH)


class WriteLimiterTests(SynchronousTestCase):
    """How soon an object may be written again."""

    def test_insisting(self) -> None:
        """The same thing is written ever more slowly, another thing at once."""
        pace, key = WriteLimiter(0.0), Key("n", "x")
        waits = []
        now = 0.0
        for _ in range(5):
            waits.append(pace.wait(key, "same", now))
            now += waits[-1]
            self.assertEqual(pace.wait(key, "other", now), 0.0)
            pace.written(key, "same", now)
        self.assertEqual(waits, [0.0, 1.0, 2.0, 4.0, 8.0])
        self.assertEqual(pace.wait(key, "same", now + SETTLED + 1), 0.0)

    def test_pause(self) -> None:
        """Between two writes of anything lies the pause of the kind; other objects do not wait."""
        pace, key = WriteLimiter(0.5), Key("n", "x")
        pace.written(key, 1, 10.0)
        self.assertEqual(pace.wait(key, 2, 10.25), 0.25)
        self.assertEqual(pace.wait(Key("n", "y"), 2, 10.1), 0.0)
        self.assertEqual(pace.wait(key, 2, 10.5), 0.0)

    def test_refused(self) -> None:
        """A refused object is left alone for a second, however often it changes at home."""
        pace, key = WriteLimiter(0.0), Key("n", "x")
        pace.failed(key, 60.0, 10.0)
        self.assertEqual(pace.wait(key, 2, 10.25), 0.75)

    def test_bounded(self) -> None:
        """What was not written for long is forgotten."""
        pace = WriteLimiter(0.0)
        for number in range(1000):
            pace.written(Key("n", str(number)), 1, float(number * 10))
        self.assertLess(len(pace), SETTLED / 10 + 10)

    def test_a_write_looks_at_few(self) -> None:
        """However many writes are remembered: another one looks at two of them, not at all."""

        class Counted(dict[Any, Any]):
            looked = 0

            def items(self) -> Any:
                for item in super().items():
                    self.looked += 1
                    yield item

        pace = WriteLimiter(0.0)
        pace._last = known = Counted()
        for number in range(500):
            pace.written(Key("n", str(number)), 1, float(number) / 100)
        self.assertEqual(len(pace), 500)
        self.assertLessEqual(known.looked, 2 * 500)
