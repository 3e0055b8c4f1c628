"""What is wrong with a cluster: causes instead of what they cause, and the same answer in every command."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.network import netcheck
from liqod.cli.network.preflight import objection
from liqod.cli.setup import doctor
from liqod.cli.status.cluster_records import advice_of
from liqod.cli.status.explain import KINDS, read
from liqod.cli.status.explain_other import explain_node, explain_peer
from liqod.cli.status.reasons import command_codes, parse, reasons
from liqod.config.schema import IdentitySettings
from liqod.identity.certs import LIFETIME, certify
from liqod.kube.connection.config import ClientConfig
from liqod.model.diagnosis.cluster import ClusterRecords, LeaderFacts, diagnose, is_stranger, problems_of, why_not_ready
from liqod.model.diagnosis.consistency import QuotaFacts, contradictions, nearly_full, orphans
from liqod.model.diagnosis.examination import Evidence, examine
from liqod.model.diagnosis.hops import ROUTE
from liqod.model.diagnosis.installation import SecretFacts
from liqod.model.diagnosis.path import PathProbes
from liqod.model.diagnosis.releases import NEWEST, PROTOCOLS, SINCE
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import Object
from liqod.model.objects.node import Node
from liqod.model.records.network import NetworkConfig, TunnelEndpoint
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, Reclaim, VirtualNode
from liqod.peering.sessions import NEWEST_MINOR
from liqod.wire.events import EVENTS

KEY = "sha256:" + "1" * 64
LEADS = LeaderFacts("one", alive=True, age=1.0)


def peer(
    phase: str, reason: str = "", message: str = "", *, key: str = KEY, name: str = "c2", **more: Any
) -> ForeignCluster:
    status = {"clusterName": more.pop("called", "milan"), "phase": phase, "reason": reason, "message": message}
    body = {"metadata": {"name": name, **more}, "spec": {"clusterID": name, "fingerprint": key}, "status": status}
    return msgspec.convert(body, ForeignCluster)


def tunnel(phase: str, reason: str = "", message: str = "") -> TunnelEndpoint:
    conditions = [{"type": "Connected", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    status = {"phase": phase, "reason": reason, "message": message, "conditions": conditions}
    return msgspec.convert({"metadata": {"name": "c2"}, "status": status}, TunnelEndpoint)


def node(ready: str, reason: str = "", *, cordoned: bool = False) -> Node:
    status = {"conditions": [{"type": "Ready", "status": ready, "reason": reason}]}
    spec = {"unschedulable": cordoned}
    return msgspec.convert({"metadata": {"name": "liqo-milan"}, "spec": spec, "status": status}, Node)


RECORD = msgspec.convert(
    {
        "metadata": {"name": "c2"},
        "spec": {"clusterID": "c2", "nodeName": "liqo-milan"},
        "status": {"phase": "NotReady", "reason": "NetworkDown", "message": "packets do not cross"},
    },
    VirtualNode,
)
BROKEN = tunnel("Error", "LocalRouteMissing", "the tunnel's device is missing on this host")


def codes(**facts: Any) -> list[tuple[str, str]]:
    return [(one.kind, one.code) for one in diagnose(ClusterRecords(**{"leader": LEADS, **facts}))]


class CausesTests(SynchronousTestCase):
    """Which problem is shown."""

    def test_healthy(self) -> None:
        """Nothing is wrong with a peer that is ready."""
        ready = msgspec.structs.replace(RECORD, status=msgspec.structs.replace(RECORD.status, phase="Ready"))
        self.assertEqual(codes(peers=[peer("Ready")], virtual_nodes=[ready], nodes=[node("True")]), [])

    def test_this_host(self) -> None:
        """A device that cannot be made is a matter of this host, and nothing is said of the peer or its node."""
        facts: dict[str, Any] = {"peers": [peer("Ready")], "tunnels": [BROKEN], "virtual_nodes": [RECORD]}
        facts["nodes"] = [node("False")]
        self.assertEqual(codes(**facts), [("host", "LocalRouteMissing")])
        (found,) = diagnose(ClusterRecords(leader=LEADS, **facts))
        self.assertIn("gateway", advice_of(found))
        self.assertEqual(found.since, "2026-01-01T00:00:00Z")
        away = {**facts, "peers": [peer("Suspect", "Unreachable", "no answer")]}
        self.assertEqual(codes(**away), [("host", "LocalRouteMissing"), ("peer", "Unreachable")])

    def test_no_tunnel_was_decided(self) -> None:
        """That there is no tunnel by decision is shown with its reason, and is nothing that is wrong."""
        status = {"phase": "None", "reason": "HostLacks", "message": "the program wg is missing"}
        without = msgspec.convert({"metadata": {"name": "c2"}, "status": status}, NetworkConfig)
        (found,) = diagnose(ClusterRecords(leader=LEADS, peers=[peer("Ready")], networks=[without]))
        self.assertEqual((found.code, found.severity), ("HostLacks", "info"))
        self.assertIn("wg is missing", found.cause)

    def test_peer_away(self) -> None:
        """Of a peer that is away neither tunnel nor node is a problem of its own."""
        facts = {"tunnels": [tunnel("Error", "NoHandshake")], "virtual_nodes": [RECORD], "nodes": [node("False")]}
        self.assertEqual(codes(peers=[peer("Suspect", "Unreachable", "no answer")], **facts), [("peer", "Unreachable")])
        self.assertEqual(codes(peers=[peer("Ready")], **facts), [("tunnel", "NoHandshake")])

    def test_node(self) -> None:
        """A node that is not ready though session and network are is named with its reason; a cordoned one is, too."""
        facts: dict[str, Any] = {
            "peers": [peer("Ready")],
            "virtual_nodes": [RECORD],
            "nodes": [node("False", cordoned=True)],
        }
        self.assertEqual(codes(**facts), [("node", "NetworkDown"), ("node", "Cordoned")])

    def test_reclaimed(self) -> None:
        """At the borrower a node of which nothing is left is named with its lender's word; at the lender what it
        ordered is no problem.
        """
        message = "the lender takes back what it lent"
        conditions = [
            {"type": "Ready", "status": "True"},
            {"type": "Reclaimed", "status": "True", "reason": "Reclaimed", "message": message},
        ]
        body = {"metadata": {"name": "liqo-milan"}, "status": {"conditions": conditions}}
        ready = msgspec.structs.replace(RECORD, status=msgspec.structs.replace(RECORD.status, phase="Ready"))
        facts = ClusterRecords(
            leader=LEADS, peers=[peer("Ready")], virtual_nodes=[ready], nodes=[msgspec.convert(body, Node)]
        )
        (found,) = diagnose(facts)
        self.assertEqual((found.code, found.severity, found.cause), ("Reclaimed", "warning", message))
        lender = peer("Ready")
        order = msgspec.structs.replace(lender.spec, reclaim=Reclaim(by="2030-01-01T00:00:00Z"))
        (found,) = diagnose(ClusterRecords(leader=LEADS, peers=[msgspec.structs.replace(lender, spec=order)]))
        self.assertEqual((found.code, found.severity), ("Reclaiming", "info"))
        self.assertIn("reclaim milan --end", found.advice)

    def test_daemon(self) -> None:
        """Without a daemon that comes first, because the records may be old."""
        self.assertEqual(codes(leader=None, peers=[peer("Ready")]), [("daemon", "NoDaemon")])
        late = LeaderFacts("one", alive=False, age=300)
        found = codes(leader=late, peers=[peer("Suspect", "Unreachable")])
        self.assertEqual(found, [("daemon", "DaemonSilent"), ("peer", "Unreachable")])

    def test_strangers(self) -> None:
        """A cluster that nobody has trusted is no problem; one that was distrusted is no stranger."""
        self.assertEqual(codes(peers=[peer("TrustPending", "TrustPending", key="")]), [])
        self.assertTrue(is_stranger(peer("Discovered", key="")))
        withdrawn = peer("TrustPending", key="", annotations={"discovery.liqo.io/distrusted": KEY})
        self.assertFalse(is_stranger(withdrawn))
        self.assertEqual(codes(peers=[withdrawn]), [("peer", "TrustWithdrawn")])

    def test_namespaces(self) -> None:
        """A namespace that a lender refuses is named."""
        status = {"mappings": {"shop": {"phase": "Refused", "reason": "NameNotYours", "message": "no"}}}
        table = msgspec.convert({"metadata": {"name": "c2"}, "status": status}, NamespaceNattingTable)
        self.assertEqual(codes(peers=[peer("Ready")], tables=[table]), [("namespace", "NameNotYours")])

    def test_one_answer(self) -> None:
        """status, explain, doctor and the tests name the same cause."""
        facts = ClusterRecords(
            leader=LEADS, peers=[peer("Ready")], tunnels=[BROKEN], virtual_nodes=[RECORD], nodes=[node("False")]
        )
        self.assertIn("LocalRouteMissing", why_not_ready(facts, "c2"))
        refused = objection(facts, "c2", "milan")
        assert refused is not None
        self.assertIn("LocalRouteMissing", refused.cause)
        self.assertIn("LocalRouteMissing", [one.code for one in doctor.findings(Evidence(records=facts))])
        path = PathProbes(peer="c2")
        shown = netcheck.findings(examine(Evidence(records=facts, path=path)))
        self.assertEqual(
            [(one.group, one.code) for one in shown if one.verdict == "bad"], [(ROUTE, "LocalRouteMissing")]
        )
        self.assertEqual(explain_node(facts, facts.nodes[0], RECORD)[-1]["state"], "LocalRouteMissing")
        self.assertIn("device is missing", explain_peer(facts, facts.peers[0])[-1]["why"])
        self.assertEqual(problems_of(facts, "c3"), [])

    def test_whose_turn(self) -> None:
        """The peer's administrator has to trust, or ours."""
        theirs = peer("TrustPending", "WaitingForPeerTrust", "milan does not trust us")
        facts = ClusterRecords(leader=LEADS, peers=[theirs, peer("Discovered", key="", name="c3", called="turin")])
        self.assertIn("milan's administrator", explain_peer(facts, facts.peers[0])[-1]["why"])
        self.assertIn("liqodctl trust turin", explain_peer(facts, facts.peers[1])[-1]["why"])

    def test_trust_that_ended(self) -> None:
        """A lender that does not trust this cluster any more is the cause, and its administrator is to be asked."""
        theirs = peer("TrustPending", "WaitingForPeerTrust", "milan does not trust us")
        (waiting,) = diagnose(ClusterRecords(leader=LEADS, peers=[theirs]))
        self.assertEqual((waiting.code, waiting.severity), ("WaitingForPeerTrust", "warning"))
        status = msgspec.structs.replace(RECORD.status, reason="CredentialRejected")
        record = msgspec.structs.replace(RECORD, status=status)
        facts = ClusterRecords(leader=LEADS, peers=[theirs], virtual_nodes=[record], nodes=[node("False")])
        (ended,) = diagnose(facts)
        self.assertEqual((ended.code, ended.kind, ended.severity), ("WaitingForPeerTrust", "peer", "error"))
        self.assertIn("does not any more", ended.cause)
        self.assertIn("liqodctl trust", advice_of(ended))
        self.assertEqual(explain_node(facts, facts.nodes[0], record)[-1]["state"], ended.code)
        self.assertIn("milan's administrator", explain_peer(facts, theirs)[-1]["why"])
        # With a session the credential itself is what is wrong.
        self.assertEqual(codes(peers=[peer("Ready")], virtual_nodes=[record]), [("node", "CredentialRejected")])

    def test_preflight(self) -> None:
        """Pods are not started where nothing is borrowed; where there is no tunnel another network may carry them."""
        facts = ClusterRecords(leader=LEADS, peers=[peer("Ready")])
        refused = objection(facts, "c2", "milan")
        assert refused is not None
        self.assertIn("no virtual node", refused.cause)
        ready = msgspec.structs.replace(RECORD, status=msgspec.structs.replace(RECORD.status, phase="Ready"))
        with_node = ClusterRecords(leader=LEADS, peers=[peer("Ready")], virtual_nodes=[ready], nodes=[node("True")])
        self.assertIsNone(objection(with_node, "c2", "milan"))


class DoctorTests(SynchronousTestCase):
    """What contradicts itself, or is left over."""

    def test_contradictions(self) -> None:
        """Two peers of one name, one key for two peers, a NamespaceOffloading of another name."""
        other = msgspec.convert({"metadata": {"name": "mine", "namespace": "shop"}}, NamespaceOffloading)
        facts = ClusterRecords(peers=[peer("Ready"), peer("Ready", name="c3")], offloadings=[other])
        found = [(one.code, one.severity) for one in contradictions(facts)]
        self.assertEqual(found, [("AmbiguousName", "warning"), ("KeyInUse", "error"), ("Ignored", "warning")])

    def test_protocols(self) -> None:
        """A peer of an earlier release is named with what does not work; one that never connected is not."""
        for spoken, lacking in (("1.0", 2), ("1.1", 1), (NEWEST, 0), ("", 0), ("2.0", 0)):
            one = peer("Ready")
            one = msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, protocol=spoken))
            found = examine(Evidence(records=ClusterRecords(leader=LEADS, peers=[one])))
            older = [problem for problem in found.problems if problem.topic == PROTOCOLS]
            self.assertEqual([problem.code for problem in older], ["PeerOlder"] * bool(lacking), spoken)
            self.assertEqual([problem.cause.count("; ") + 1 for problem in older], [lacking] * bool(lacking))
            self.assertEqual(PROTOCOLS in [passed.topic for passed in found.passed], spoken == NEWEST)

    def test_the_newest_protocol(self) -> None:
        """It is the one that daemons speak, and whatever came with a minor is said of those before it."""
        self.assertEqual(NEWEST, f"1.{NEWEST_MINOR}")
        self.assertEqual(set(SINCE), {kind.since for kind in EVENTS if kind.since})

    def test_networks(self) -> None:
        """Networks that overlap as they are mapped here are found, others are not."""

        def config(name: str, cidr: str) -> NetworkConfig:
            spec = {"local": {"podCIDRs": ["10.1.0.0/16"]}, "remap": {"podCIDRs": [cidr]}}
            return msgspec.convert({"metadata": {"name": name}, "spec": spec}, NetworkConfig)

        for cidr, codes in (("10.3.0.0/16", []), ("10.2.8.0/24", ["CIDROverlap"])):
            facts = ClusterRecords(leader=LEADS, networks=[config("c2", "10.2.0.0/16"), config("c3", cidr)])
            found = examine(Evidence(records=facts))
            self.assertEqual([one.code for one in found.problems], codes)
            self.assertEqual("Networks" in [one.topic for one in found.passed], not codes)

    def test_what_is_not_released(self) -> None:
        """The mappings that wait for a peer, which may never come back, are named with what gives them up."""
        waits = {"phase": "Releasing", "reason": "PeerUnreachable", "message": "there is no session"}
        mappings = {"shop": waits, "web": {"phase": "Ready"}}
        body = {"metadata": {"name": "c2"}, "status": {"mappings": mappings}}
        facts = ClusterRecords(peers=[peer("Lost")], tables=[msgspec.convert(body, NamespaceNattingTable)])
        (found,) = orphans(facts, ())
        self.assertEqual((found.code, found.name, found.severity), ("PeerUnreachable", "milan", "warning"))
        self.assertIn("not released at milan, 1 of its namespaces: there is no session", found.cause)
        self.assertIn("liqodctl unpeer milan --dead", found.advice)

    def test_orphans(self) -> None:
        """Namespaces, nodes and records of unknown peers are listed, each with what to do; known ones are not."""
        space = msgspec.convert(
            {"metadata": {"name": "shop-c9", "labels": {"liqo.io/remote-cluster-id": "c9"}}}, Object
        )
        facts = ClusterRecords(nodes=[node("True")], tunnels=[tunnel("Connected")])
        found = list(orphans(facts, [space]))
        self.assertEqual([one.kind for one in found], ["namespace", "node", "object"])
        self.assertTrue(all(one.advice for one in found))
        known = ClusterRecords(
            peers=[peer("Ready"), peer("Ready", name="c9")],
            nodes=[node("True")],
            virtual_nodes=[RECORD],
            tunnels=[tunnel("Connected")],
        )
        self.assertEqual(list(orphans(known, [space])), [])

    def test_quotas(self) -> None:
        """More than nine tenths is nearly full; what has no limit is not."""
        self.assertEqual(nearly_full({"cpu": 95, "memory": 1, "gpu": 3}, {"cpu": 100, "memory": 2}), ["cpu"])  # type: ignore[dict-item]

    def test_quotas_of_tenants(self) -> None:
        """A tenant's quota here of which nearly all is used is named, one that allows nothing is not."""
        quotas = [
            QuotaFacts("shop-c2", "liqod", {"pods": Fraction(10)}, {"pods": Fraction(10)}),
            QuotaFacts("bank-c2", "liqod", {"pods": Fraction(10), "gpu": Fraction(0)}, {"pods": Fraction(9)}),
        ]
        (found,) = examine(Evidence(quotas=quotas)).problems
        self.assertEqual((found.code, found.kind, found.name), ("NearlyFull", "namespace", "shop-c2"))

    def test_what_will_end(self) -> None:
        """Certificates in files and in a kubeconfig, and a token made for long, are named weeks before they end."""
        now = datetime.now(UTC)
        soon = certify(Ed25519PrivateKey.generate(), ClusterID("c1"), now - LIFETIME + timedelta(days=10))
        file = Path(self.mktemp())
        file.write_bytes(soon.certificate_pem)
        (of_file,) = doctor.of_files(IdentitySettings(certificate=str(file), ca="/nonexistent"))
        wanted: list[tuple[SecretFacts, list[str]]] = [(of_file, ["CertificateExpiring"])]
        config = ClientConfig("https://192.0.2.1", client_cert_pem=soon.certificate_pem)
        wanted.append((doctor.of_kubeconfig(config), ["CertificateExpiring"]))
        for lifetime, found in ((timedelta(hours=1), []), (timedelta(days=90), ["TokenExpiring"])):
            end = now + timedelta(minutes=30)
            times = {"iat": (end - lifetime).timestamp(), "exp": end.timestamp()}
            account = {"kubernetes.io": {"serviceaccount": {"uid": "u"}}, "sub": "system:serviceaccount:a:b"}
            body = base64.urlsafe_b64encode(json.dumps({**account, **times}).encode()).decode()
            token = f"e30.{body}.x"
            wanted.append((doctor.of_kubeconfig(ClientConfig("https://192.0.2.1", token=partial(str, token))), found))
        for facts, codes_of_it in wanted:
            self.assertEqual([one.code for one in examine(Evidence(secrets=[facts], now=now)).problems], codes_of_it)


class ReasonsTests(SynchronousTestCase):
    """The table of reasons in the documentation."""

    def test_parsed(self) -> None:
        """Each reason has what it means, where it appears, and what to do."""
        found = reasons()
        self.assertGreater(len(found), 150)
        (row,) = found["TrustPending"]
        self.assertIn("compare the words", row.advice)
        self.assertEqual(parse("| a | b |\n| `NoTable` | x | y |\n"), {})

    def test_codes(self) -> None:
        """Every code of a failed command has a meaning."""
        from liqod.cli.console import errors

        codes = {value for name, value in vars(errors).items() if isinstance(value, str) and value.startswith("LQ")}
        self.assertEqual(codes, set(command_codes()))

    def test_offers(self) -> None:
        """An offer that waits for a decision is somebody's turn."""
        waiting = peer("Offered", "DecisionPending", "the policy is Manual")
        offer = msgspec.convert({"metadata": {"name": "advertisement-c2"}}, Advertisement)
        conditions = [{"type": "Accepted", "status": "False", "reason": "DecisionPending", "message": "Manual"}]
        status = msgspec.convert(
            {**msgspec.to_builtins(waiting.status), "conditions": conditions}, type(waiting.status)
        )
        waiting = msgspec.structs.replace(waiting, status=status)
        facts = ClusterRecords(leader=LEADS, peers=[waiting], offers=[offer])
        self.assertEqual([one.code for one in diagnose(facts)], ["DecisionPending"])
        self.assertIn("liqodctl accept milan", explain_peer(facts, waiting)[-1]["why"])


class WordTests(SynchronousTestCase):
    """What `explain` takes for a kind."""

    def test_every_kind_and_its_plural(self) -> None:
        """Each word is the kind that its singular is, with a blank or a slash before the name."""
        for word, kind in KINDS.items():
            for written in (word, f"{word}s", word.upper()):
                self.assertEqual(read((written, "one")), (kind, "one"), written)
                self.assertEqual(read((f"{written}/one",)), (kind, "one"), written)
