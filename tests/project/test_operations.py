"""The page for operators knows every reason that the code can give."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from liqod.kube import resources
from liqod.kube.resources import Resource
from liqod.model.diagnosis.cluster import _UNDECIDED
from liqod.model.records import facts
from liqod.peering.records.phase_reasons import _KNOWN

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operations.md"
AUDIT_PAGE = PAGE.with_name("audit.md")
OTHERS = (
    "liqod/kube/resources.py",
    "liqod/peering/records/phase_reasons.py",
    "liqod/model/diagnosis/codes.py",
)
"""Code that gives no reason: the names of kinds, and the reasons of others."""

CAMEL_CASE = re.compile(r"(?=.*[a-z])[A-Z][a-z0-9]*[A-Z][A-Za-z0-9]*")
WORD = re.compile(r"[A-Z][A-Za-z0-9]+")
GIVERS = {
    "Bye",
    "Defer",
    "Doubt",
    "Refusal",
    "Refuse",
    "RemoteProtocolError",
    "StartupError",
    "not_ready",
}
"""What is called with a reason as its first argument."""
CONDITIONS = {"_yes", "_no", "_unknown"}
"""What makes a condition of its type, its reason and its message."""

_OF_KUBERNETES = """
    AdmissionReview AlreadyExists BadRequest BearerToken CertificateSigningRequest ClusterConfiguration ClusterFirst
    ClusterFirstWithHostNet ClusterIP ConfigMap ConnectingCancelledError ContainerCreating ContainersReady
    FallbackToLogsOnError PathPrefix RequestHeaderModifier RequestRedirect ResponseHeaderModifier URLRewrite
    CrashLoopBackOff CreateContainerConfigError CustomResourceDefinition DaemonSet DeadlineExceeded DiskPressure
    DisruptionTarget DoNotSchedule DoesNotExist ErrImageNeverPull ErrImagePull ExternalIP ExternalName IfNeeded
    IfNotPresent ImageInspectError ImagePullBackOff InternalError InternalIP InvalidImageName JSONPatch
    LoadBalancer MemoryPressure MethodNotAllowed NetworkUnavailable NoExecute NoSchedule NodeAffinity NodePort
    NodeShutdown NotFound NotIn OnDelete OnFailure PIDPressure PersistentVolumeClaim PodInitializing PodList PodMetrics
    PodReadyToStartContainers PodResizeInProgress PodResizePending PodScheduled PreferNoSchedule ReadOnlyMany
    ReadWriteMany ReadWriteOnce ReadWriteOncePod RegistryUnavailable ReplicaFailure ReplicaSet ReplicationController
    RequestEntityTooLarge RuntimeDefault ScheduleAnyway SelfSubjectAccessReview SelfSubjectReview ServiceAccount
    ServiceCIDR ServiceUnavailable StatefulSet SubjectAccessReview TokenRequest TokenReview UnexpectedAdmissionError
    WaitForFirstConsumer
"""
"""Words of the Kubernetes API that the code reads or writes without meaning a reason of its own."""

_OF_SYSTEMD = "ActiveState ExecMainStartTimestampMonotonic LoadState StatusText UnitFileState"
"""Properties of a unit, as systemctl(1) shows them."""

_OF_OURS = """
    AllowList AppVersion AutoAcceptAll AutoAcceptMax CRDs CSafeLoader ClusterID DefaultName DenyList EndOfMessage
    EnforceSameName FallbackNTP FelixConfiguration HomeAPI HomeServices
    IPPool IPv4 IPv6 InformationalResponse LiqodVirtualNodes LocalAndRemote NotOlderThan OffloadingRequired OpenSSL
    OutOf RemoteClusterHasNo SelectedName WithinLimits
"""
"""Values of settings, parts of words, names of fields."""


def sources() -> Iterator[Path]:
    for path in sorted((ROOT / "liqod").rglob("*.py")):
        if not str(path.relative_to(ROOT)).startswith(OTHERS):
            yield path


def reasons(tree: ast.AST) -> Iterator[str]:
    """Yield the words in a module that may be reasons: CamelCase texts, and the plain words that are given as one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CAMEL_CASE.fullmatch(node.value):
            yield node.value
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
            if name in GIVERS:
                given += node.args[:1]
            if name in CONDITIONS:
                given += node.args[1:2]
            for one in given:
                if isinstance(one, ast.Constant) and isinstance(one.value, str) and WORD.fullmatch(one.value):
                    yield one.value


def reported() -> set[str]:
    """Return the words that the page's tables explain: those in the first column."""
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    # Types of security events, and reasons that only these have, are in the tables of their own page.
    rows += [line for line in AUDIT_PAGE.read_text().splitlines() if line.startswith("| `")]
    return {word for row in rows for word in re.findall(r"`([A-Za-z]+)`", row)}


class ReasonsTests(SynchronousTestCase):
    def test_every_reason_is_explained(self) -> None:
        """Each reason in the code stands in a table of docs/operations.md."""
        kinds = {one.kind for one in vars(resources).values() if isinstance(one, Resource)}
        names = {value for value in vars(facts).values() if isinstance(value, str)}
        known = reported() | kinds | names | {*_OF_KUBERNETES.split(), *_OF_SYSTEMD.split(), *_OF_OURS.split()}
        unknown = {
            word: str(path.relative_to(ROOT))
            for path in sources()
            for word in reasons(ast.parse(path.read_text()))
            if word not in known
        }
        self.assertEqual(unknown, {}, f"explain in {PAGE.name}, or add to the words that are no reasons here")

    def test_no_reason_is_left_over(self) -> None:
        """What the page explains, the code still says."""
        texts = "\n".join(path.read_text() for path in sources())
        self.assertEqual([word for word in sorted(reported()) if word not in texts and "HasNo" not in word], [])

    def test_the_reasons_of_phases(self) -> None:
        """Those of peers and offers are shown in the metrics as they are; connections of pods are no phases."""
        sections = PAGE.read_text().split("\n### ")
        rows = [
            line.split("|")[1]
            for section in sections
            if section.startswith(("A peer that is seen", "Offers"))
            for line in section.splitlines()
            if line.startswith("| `") and not line.startswith(("| `Relay", "| `Stream", "| `TooManyStreams`"))
        ]
        words = {word for row in rows for word in re.findall(r"`([A-Za-z]+)`", row)}
        listed = f"{PAGE.name} and {OTHERS[1]} differ"
        self.assertEqual(words - _KNOWN, set(), f"add to _WORDS: {listed}")
        self.assertEqual(_KNOWN - words, {"Dialing", "Lending", "Peered", "Unpeering"}, f"explain there: {listed}")

    def test_verdicts_on_offers(self) -> None:
        """Each reason for which an offer is not accepted is shown in the metrics and explained among the offers, and a
        problem to `status`, but where somebody decided so, the peer is not trusted, or it lends no more.
        """
        text = (ROOT / "liqod" / "acceptance" / "stages.py").read_text()
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and node.args]
        given = {
            call.args[0].value
            for call in calls
            if isinstance(call.func, ast.Name)
            and call.func.id in ("Accept", "Defer", "Refuse")
            and isinstance(call.args[0], ast.Constant)
        }
        self.assertIn("TooExpensive", given)
        self.assertEqual(given - _KNOWN, set(), f"add to _WORDS in {OTHERS[1]}")
        decided = {"Accepted", "AcceptedByUser", "RefusedByUser", "PeeringDisabled", "NotTrusted", "Withdrawn"}
        place = "liqod/model/diagnosis/cluster.py"
        self.assertEqual(given - decided - set(_UNDECIDED), set(), f"add to _UNDECIDED in {place}")

    def test_it_finds_reasons(self) -> None:
        """A reason is found as a text of its own, as a first argument and by its name."""
        text = 'x = "BrandNew"\nraise Refusal("Plain", "because")\nCondition(reason="Named", message="Not this one")'
        text += '\n_yes("Type", "Second", "seen")'
        self.assertEqual(sorted(reasons(ast.parse(text))), ["BrandNew", "Named", "Plain", "Second"])
