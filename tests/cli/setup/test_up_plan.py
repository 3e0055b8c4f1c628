"""Which steps ``up`` plans: tables and properties."""

from __future__ import annotations

from typing import get_args

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.setup.up.observe import is_same_cluster
from liqod.cli.setup.up.plan import (
    Credentials,
    DaemonUnit,
    FoundSetup,
    Invitation,
    Kubeconfig,
    is_needed,
    plan,
    refused,
)
from liqod.kube.connection.config import ClientConfig

DONE = FoundSetup(
    kubeconfig=Kubeconfig("/etc/liqod/kubeconfig", "current", ours=True),
    service=DaemonUnit("liqod.service", enabled=True, running=True),
    keyed=True,
)
BARE = attrs.evolve(
    DONE,
    kubeconfig=Kubeconfig("/etc/liqod/kubeconfig"),
    files=("write /etc/liqod/liqod.toml",),
    objects=("Namespace liqo-system", "ClusterRole liqod", "ClusterRole borrower"),
    service=DaemonUnit("liqod.service"),
    keyed=False,
)
LINES = st.lists(st.just("Kind name"), max_size=2)
NAMES = ["check", "host", "cluster", "kubeconfig", "service", "ready"]


def states(found: FoundSetup) -> dict[str, str]:
    """Return the state of each step, in their order."""
    return {step.name: step.state for step in plan(found)}


class StepTests(SynchronousTestCase):
    def test_bare(self) -> None:
        """On a bare host everything is needed, files before records before credentials before the service."""
        self.assertEqual(list(states(BARE)), NAMES)
        self.assertEqual(states(BARE), {"check": "done"} | dict.fromkeys(NAMES[1:], "needed"))
        self.assertIn("2 ClusterRole, 1 Namespace", plan(BARE)[2].why)

    def test_complete(self) -> None:
        """Where everything is there nothing is needed."""
        self.assertEqual(states(DONE), dict.fromkeys(NAMES, "done"))

    def test_one_missing(self) -> None:
        """What is missing is done, and what depends on it; nothing else."""
        for changed, needed in (
            ({"files": ("write /usr/local/bin/liqodctl",)}, {"host"}),
            ({"files": ("replace unit",), "outdated": True}, {"host", "service", "ready"}),
            ({"objects": ("ClusterRole liqod",)}, {"cluster"}),
            ({"kubeconfig": Kubeconfig("/k")}, {"kubeconfig", "service", "ready"}),
            ({"service": DaemonUnit("u", enabled=True)}, {"service", "ready"}),
            ({"service": DaemonUnit("u", running=True)}, {"service", "ready"}),
            ({"keyed": False}, {"ready"}),
            ({"service": None}, set()),
            ({"invitation": Invitation("milan", trusted=True)}, set()),
            ({"invitation": Invitation("milan")}, {"peering"}),
        ):
            found = attrs.evolve(DONE, **changed)
            self.assertEqual({name for name, state in states(found).items() if state == "needed"}, needed, changed)
            self.assertEqual(refused(plan(found)), [], changed)

    def test_refused(self) -> None:
        """What is in the way is refused, with its reason."""
        for changed, name, reason in (
            ({"failed": ("no clock",)}, "check", "no clock"),
            ({"obstacles": ("/etc is read-only",)}, "host", "/etc is read-only"),
            ({"service": DaemonUnit("u", problem="no systemd")}, "service", "no systemd"),
            ({"invitation": Invitation("milan", problem="cut off")}, "peering", "cut off"),
            ({"kubeconfig": Kubeconfig("/k", "foreign", ours=True)}, "kubeconfig", "another cluster"),
        ):
            steps = plan(attrs.evolve(BARE, **changed))
            (step,) = [one for one in steps if one.state == "refused"]
            self.assertEqual(step.name, name)
            self.assertIn(reason, refused(steps)[0])

    def test_kubeconfig(self) -> None:
        """A kubeconfig that we wrote is renewed; another's is used if it works, and else refused, never replaced."""
        ours = dict.fromkeys(get_args(Credentials), "needed") | {"current": "done", "foreign": "refused"}
        theirs = dict.fromkeys(get_args(Credentials), "refused")
        theirs |= {"current": "done", "usable": "done", "absent": "needed"}
        for mine, table in ((True, ours), (False, theirs)):
            for credentials, state in table.items():
                found = attrs.evolve(DONE, kubeconfig=Kubeconfig("/k", credentials, mine))
                self.assertEqual(states(found)["kubeconfig"], state, (credentials, mine))

    @given(
        st.builds(
            FoundSetup,
            kubeconfig=st.builds(Kubeconfig, st.just("/k"), st.sampled_from(get_args(Credentials)), st.booleans()),
            failed=LINES,
            obstacles=LINES,
            files=LINES,
            objects=LINES,
            outdated=st.booleans(),
            service=st.none()
            | st.builds(DaemonUnit, st.just("u"), st.booleans(), st.booleans(), problem=st.sampled_from(["", "x"])),
            keyed=st.booleans(),
            invitation=st.none() | st.builds(Invitation, st.just("m"), st.booleans(), st.sampled_from(["", "x"])),
        )
    )
    def test_repeated(self, found: FoundSetup) -> None:
        """Whatever was found and wherever a run ended, carrying out what is needed leaves nothing to do."""
        if refused(plan(found)):
            return
        for _ in range(7):
            first = next((step.name for step in plan(found) if step.state == "needed"), "")
            if not first:
                break
            # Only the first step that is needed is carried out, then the run is interrupted.
            found = carried_out(found, first)
        self.assertFalse(is_needed(plan(found)))


def carried_out(found: FoundSetup, step: str) -> FoundSetup:
    """Return what is found after one step."""
    match step:
        case "host":
            return attrs.evolve(found, files=())
        case "cluster":
            return attrs.evolve(found, objects=())
        case "kubeconfig":
            return attrs.evolve(found, kubeconfig=Kubeconfig("/k", "current", ours=True), outdated=True)
        case "service":
            return attrs.evolve(found, service=DaemonUnit("u", enabled=True, running=True), outdated=False)
        case "ready":
            return attrs.evolve(found, keyed=True)
    return attrs.evolve(found, invitation=Invitation("m", trusted=True))


class SameClusterTests(SynchronousTestCase):
    def test_same_cluster(self) -> None:
        """Two kubeconfigs are for one cluster if they have one authority, at whatever address; else by the address."""
        for one, other, same in (
            (("https://a", b"ca"), ("https://b", b"ca\n"), True),
            (("https://a", b"ca"), ("https://a", b"other"), False),
            (("https://a", None), ("https://a", b"ca"), True),
            (("https://a", None), ("https://b", None), False),
        ):
            self.assertEqual(is_same_cluster(ClientConfig(*one), ClientConfig(*other)), same, (one, other))
