"""The steps of a move, by table, and that no order of them and of accidents loses data."""

from __future__ import annotations

from typing import Any

from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.workloads.move.plan import Begin, End, Make, Note, Refused, Remove, Rest, Step, Wait, plan
from liqod.cli.workloads.move.seen import (
    HOME,
    ClaimSeen,
    JobName,
    JobSeen,
    MoveRecord,
    Observed,
    Part,
    Phase,
    ServerSeen,
    Wish,
)
from tests.hosting.tenants.test_policies import STEADILY

TO_MILAN = Wish("milan")
CONFIRM = Wish(confirm=True)
CANCEL = Wish(cancel=True)
CLAIM = ClaimSeen("u1")
SERVER = ServerSeen("s1", ready=True)
SUCCEEDED = JobSeen("succeeded", repository="s1")


def record(phase: Phase = "copying") -> MoveRecord:
    return MoveRecord(id="m", claim="data", uid="u1", origin=HOME, target="milan", phase=phase, body={})


def seen(phase: Phase | None = None, **fields: Any) -> Observed:
    return Observed(**{"claim": CLAIM, "record": None if phase is None else record(phase), **fields})


SERVED: dict[str, Any] = {"secret": True, "service": True, "server": SERVER}
COPIED: dict[str, Any] = {"copy": ClaimSeen("c1", move="m")}


class BeginTests(SynchronousTestCase):
    """Whether a move begins."""

    def test_it_begins(self) -> None:
        """A claim that is bound, of our class, and that no pod has."""
        self.assertEqual(plan(seen(), TO_MILAN), Begin())
        self.assertEqual(plan(seen(origin="milan"), Wish(HOME)), Begin())

    def test_refusals(self) -> None:
        """Each with its reason."""
        for found, wish, reason in (
            (seen(claim=None), TO_MILAN, "ClaimGone"),
            (seen(claim=evolve(CLAIM, deleting=True)), TO_MILAN, "ClaimGone"),
            (seen(follows=False), TO_MILAN, "OtherClass"),
            (seen(claim=evolve(CLAIM, block=True)), TO_MILAN, "BlockVolume"),
            (seen(claim=evolve(CLAIM, bound=False)), TO_MILAN, "NotBound"),
            (seen(origin="milan"), TO_MILAN, "AlreadyThere"),
            (seen(), Wish(HOME), "AlreadyThere"),
            (seen(lacking=("milan",)), TO_MILAN, "NamespaceNotOffloaded"),
            (seen(offers_storage=False), TO_MILAN, "StorageNotOffered"),
            (seen(users=("web-0",)), TO_MILAN, "InUse"),
            (seen(), CONFIRM, "NotMoving"),
            (seen(), CANCEL, "NotMoving"),
            (seen("copying"), Wish("rome"), "AlreadyMoving"),
            (seen("copied"), Wish("rome"), "AlreadyMoving"),
        ):
            step = plan(found, wish)
            assert isinstance(step, Refused), (step, reason)
            self.assertEqual(step.reason, reason)

    def test_many_users(self) -> None:
        """A few of them are named."""
        step = plan(seen(users=tuple(f"web-{number}" for number in range(9))), TO_MILAN)
        assert isinstance(step, Refused)
        self.assertIn("web-4 and 4 more", step.message)


class StepTests(SynchronousTestCase):
    """The steps, one after the other."""

    def test_copying(self) -> None:
        """A repository at the origin, the backup, the claim for the copy, the restoration."""
        backup: dict[JobName, JobSeen] = {"backup": SUCCEEDED}
        for found, step in (
            (seen("copying"), Make("secret")),
            (seen("copying", secret=True), Make("service")),
            (seen("copying", secret=True, service=True), Make("server")),
            (seen("copying", **{**SERVED, "server": ServerSeen("s1")}), Wait("the repository to be served")),
            (seen("copying", **SERVED), Make("backup")),
            (seen("copying", **SERVED, jobs={"backup": JobSeen("running", "42 %", "s1")}), Wait("the backup (42 %)")),
            (seen("copying", **SERVED, jobs=backup), Make("copy")),
            (seen("copying", **SERVED, **COPIED, jobs=backup), Make("restore")),
            (seen("copying", **SERVED, **COPIED, jobs={**backup, "restore": SUCCEEDED}), Note("copied")),
        ):
            self.assertEqual(plan(found, TO_MILAN), step)

    def test_a_repository_that_was_lost(self) -> None:
        """With its pod goes what was in it, and what was read of it may be half of it: both are made again."""
        lost: dict[str, Any] = {**SERVED, **COPIED, "server": ServerSeen("s2", ready=True)}
        both: dict[JobName, JobSeen] = {"backup": SUCCEEDED, "restore": JobSeen("running", repository="s1")}
        self.assertEqual(plan(seen("copying", **lost, jobs=both), TO_MILAN), Remove("restore"))
        self.assertEqual(plan(seen("copying", **lost, jobs={"backup": SUCCEEDED}), TO_MILAN), Remove("backup"))
        self.assertEqual(plan(seen("copying", server=SERVER), TO_MILAN), Remove("server"))

    def test_failures(self) -> None:
        """A full disk has a reason of its own; a later run tries once more."""
        for words, reason in (
            ("write /data/a: no space left on device", "DiskFull"),
            ("server response unexpected: 507 Insufficient Storage", "DiskFull"),
            ("cp: write error: No space left on device", "DiskFull"),
            ("permission denied", "JobFailed"),
            ("", "JobFailed"),
        ):
            failed = JobSeen("failed", words, "s1")
            for found, part in (
                (seen("copying", **SERVED, jobs={"backup": failed}), "backup"),
                (seen("copying", **SERVED, **COPIED, jobs={"backup": SUCCEEDED, "restore": failed}), "restore"),
                (seen("switching", **COPIED, claim=ClaimSeen("u2", move="m"), jobs={"refill": failed}), "refill"),
            ):
                step = plan(found, CONFIRM)
                assert isinstance(step, Refused), step
                self.assertEqual(step.reason, reason)
                self.assertEqual(plan(found, evolve(CONFIRM, again=True)), Remove(part))  # type: ignore[arg-type]

    def test_a_claim_in_use(self) -> None:
        """Nothing goes on while a pod has it: what it writes would be in no copy."""
        used = ("web-0",)
        for found in (
            seen("copying", users=used),
            seen("copying", **SERVED, **COPIED, jobs={"backup": SUCCEEDED, "restore": SUCCEEDED}, users=used),
            seen("copied", **COPIED, users=used),
            seen("switching", **COPIED, users=used),
        ):
            step = plan(found, CONFIRM)
            assert isinstance(step, Refused), step
            self.assertEqual(step.reason, "InUse")

    def test_resting(self) -> None:
        """What copied is removed; then it is somebody's turn."""
        self.assertEqual(plan(seen("copied", **SERVED, **COPIED), TO_MILAN), Remove("server"))
        self.assertEqual(plan(seen("copied", **COPIED), TO_MILAN), Rest())
        self.assertEqual(plan(seen("copied", **COPIED), CONFIRM), Note("switching"))
        for copy in (None, ClaimSeen("c1", bound=False), ClaimSeen("c1", deleting=True)):
            step = plan(seen("copied", copy=copy), TO_MILAN)
            assert isinstance(step, Refused)
            self.assertEqual(step.reason, "CopyGone")

    def test_switching(self) -> None:
        """The original goes, and no other claim; the new one is filled, and the copy goes last."""
        mine, other = ClaimSeen("u2", bound=False, move="m"), ClaimSeen("u3")
        done: dict[JobName, JobSeen] = {"refill": JobSeen("succeeded")}
        for found, step in (
            (seen("switching", **COPIED), Remove("claim")),
            (seen("switching", **COPIED, claim=None), Make("claim")),
            (seen("switching", **COPIED, claim=mine), Make("refill")),
            (seen("switching", **COPIED, claim=mine, jobs=done), Note("switched")),
            (seen("switched", **COPIED, claim=mine, jobs=done), Remove("refill")),
            (seen("switched", **COPIED, claim=mine), Remove("copy")),
            (seen("switched", claim=mine), End(moved=True)),
        ):
            self.assertEqual(plan(found, CONFIRM), step)
        # Somebody deleted the copy while the original was there: nothing is given up, and the move can be.
        for copy in (None, ClaimSeen("c1", deleting=True)):
            self.assertEqual(plan(seen("switching", copy=copy), CONFIRM), Note("copied"))
            gone = plan(seen("switching", copy=copy, claim=None), CONFIRM)
            assert isinstance(gone, Refused)
            self.assertEqual(gone.reason, "CopyGone")
        taken = plan(seen("switching", **COPIED, claim=other), CONFIRM)
        assert isinstance(taken, Refused)
        self.assertEqual(taken.reason, "ClaimTaken")

    def test_giving_up(self) -> None:
        """All that was made goes, and never the original; not once that is given up."""
        early: tuple[Phase, ...] = ("copying", "copied")
        late: tuple[Phase, ...] = ("switching", "switched")
        for phase in early:
            made = {**SERVED, **COPIED, "jobs": {"backup": SUCCEEDED}}
            self.assertEqual(plan(seen(phase, **made), CANCEL), Remove("backup"))
            self.assertEqual(plan(seen(phase, **COPIED), CANCEL), Remove("copy"))
            self.assertEqual(plan(seen(phase), CANCEL), End(moved=False))
        for phase in late:
            step = plan(seen(phase, **COPIED), CANCEL)
            assert isinstance(step, Refused)
            self.assertEqual(step.reason, "TooLate")


@define
class World:
    """Clusters in which steps are taken and accidents happen; ``copy`` and ``claim`` are what is in them, by version.

    The data is version 1; 0 is an empty or half a volume.
    """

    seen: Observed
    original: int | None = 1
    repository: int = 0
    copied: int | None = None
    filled: int | None = None
    made: int = 1
    steps: list[Step] = field(factory=list)

    @property
    def is_kept(self) -> bool:
        return 1 in (self.original, self.copied, self.filled)

    def take(self, step: Step) -> None:
        self.steps.append(step)
        match step:
            case Begin():
                self.seen = evolve(self.seen, record=record())
            case Note(phase):
                self.seen = evolve(self.seen, record=record(phase))
            case Make(part):
                self.make(part)
            case Remove(part):
                self.remove(part)
            case End():
                self.seen = evolve(self.seen, record=None)

    def make(self, part: Part) -> None:
        self.made += 1
        name = f"n{self.made}"
        match part:
            case "secret":
                self.seen = evolve(self.seen, secret=True)
            case "service":
                self.seen = evolve(self.seen, service=True)
            case "server":
                self.repository = 0
                self.seen = evolve(self.seen, server=ServerSeen(name))
            case "copy":
                self.copied = 0
                self.seen = evolve(self.seen, copy=ClaimSeen(name, bound=False, move="m"))
            case "claim":
                self.filled = 0
                self.seen = evolve(self.seen, claim=ClaimSeen(name, bound=False, move="m"))
            case _:
                server = "" if self.seen.server is None else self.seen.server.uid
                self.seen = evolve(self.seen, jobs={**self.seen.jobs, part: JobSeen("running", repository=server)})

    def remove(self, part: Part) -> None:
        match part:
            case "secret":
                self.seen = evolve(self.seen, secret=False)
            case "service":
                self.seen = evolve(self.seen, service=False)
            case "server":
                self.repository = 0
                self.seen = evolve(self.seen, server=None)
            case "copy":
                self.copied = None
                self.seen = evolve(self.seen, copy=None)
            case "claim":
                assert self.seen.claim is not None and self.seen.claim.uid == "u1", "only the original goes"
                self.original = None
                self.seen = evolve(self.seen, claim=None)
            case _:
                self.seen = evolve(self.seen, jobs={k: v for k, v in self.seen.jobs.items() if k != part})

    def pass_time(self) -> None:
        """Have what runs succeed; without its repository a job fails."""
        if (server := self.seen.server) is not None:
            self.seen = evolve(self.seen, server=evolve(server, ready=True))
        jobs: dict[JobName, JobSeen] = {}
        for name, job in self.seen.jobs.items():
            jobs[name] = job
            if job.state == "running":
                has_repository = server is not None and server.uid == job.repository
                succeeds = name == "refill" or has_repository
                jobs[name] = evolve(job, state="succeeded" if succeeds else "failed")
                if succeeds:
                    self._succeed(name)
        self.seen = evolve(self.seen, jobs=jobs)

    def _succeed(self, name: JobName) -> None:
        match name:
            case "backup":
                self.repository = self.original or 0
            case "restore":
                self.copied = self.repository
                assert self.seen.copy is not None
                self.seen = evolve(self.seen, copy=evolve(self.seen.copy, bound=True))
            case "refill":
                self.filled = self.copied

    def accident(self, kind: str) -> None:
        """Have something go wrong that may at any moment."""
        match kind:
            case "server":
                self.remove("server")
            case "secret" | "service":
                self.remove("secret" if kind == "secret" else "service")
            case "fail":
                self.seen = evolve(
                    self.seen,
                    jobs={
                        name: evolve(job, state="failed") if job.state == "running" else job
                        for name, job in self.seen.jobs.items()
                    },
                )
            case "forget":
                self.seen = evolve(self.seen, jobs={})


class AccidentTests(SynchronousTestCase):
    """Whatever goes wrong, and wherever a run ends."""

    @given(
        st.lists(st.sampled_from(["go", "go", "go", "time", "server", "secret", "service", "fail", "forget"])),
        st.booleans(),
    )
    @STEADILY
    def test_nothing_is_lost(self, events: list[str], cancels: bool) -> None:
        """There is a whole copy of the data at every moment, and in the end it is where it was asked to be."""
        world = World(seen())
        wishes = [evolve(TO_MILAN, again=True), evolve(CONFIRM, again=True)]
        for event in events:
            if event == "go":
                has_rested = world.seen.record is not None and world.seen.record.phase != "copying"
                if world.steps and isinstance(world.steps[-1], End):
                    break
                world.take(plan(world.seen, wishes[has_rested]))
            elif event == "time":
                world.pass_time()
            else:
                world.accident(event)
            self.assertTrue(world.is_kept, world.steps)
        self.finish(world, cancels)

    def finish(self, world: World, cancels: bool) -> None:
        """Have the move end, one way or the other."""
        for _ in range(60):
            if world.steps and isinstance(world.steps[-1], End):
                break
            phase = "" if world.seen.record is None else world.seen.record.phase
            wish = evolve(TO_MILAN if phase in ("", "copying") else CONFIRM, again=True)
            if cancels and phase in ("copying", "copied"):
                wish = CANCEL
            world.take(plan(world.seen, wish))
            world.pass_time()
            self.assertTrue(world.is_kept, world.steps)
        last = world.steps[-1]
        assert isinstance(last, End), world.steps
        there = (None, None, 1) if last.moved else (1, None, None)
        self.assertEqual((world.original, world.copied, world.filled), there)
