"""What a flood is made of: frames, offers, reviews, questions and chains that cost most for their size. Pure."""

from __future__ import annotations

import datetime
import json
import struct
from collections.abc import Iterator
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from liqod.identity.certs import generate
from liqod.model.ids import ClusterID
from liqod.model.records.offer import Offer
from liqod.wire.events import Advertise, Event, Hello, Withdraw
from liqod.wire.framing import frame
from liqod.wire.session import SessionProtocol
from tests.identity.hostile_chains import chain, slow_rsa

STRANGERS_FRAME: Final = 8000
"""Bytes of a stranger's frame: a little less than it may have."""
REVIEW: Final = 1_900_000
"""Bytes of a review: a little less than one may have."""


def identity(shape: str, now: datetime.datetime) -> bytes:
    """Return a stranger's key and what it shows, as PEM: ``costly`` is a chain of keys that are dear to verify."""
    if shape != "costly":
        made = generate(ClusterID("stranger"), now)
        return made.key_pem + made.certificate_pem
    key = slow_rsa(2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + b"".join(one.public_bytes(Encoding.PEM) for one in chain(key, 6, now=now))


def first_frame(shape: str) -> bytes:
    """Return what a stranger says first: a greeting, or a frame as large and as deep as it may be."""
    if shape == "greeting":
        hello = Hello("11111111-2222-3333-4444-555555555555", "stranger", epoch=1, min_minor=0, max_minor=0)
        return SessionProtocol("dialer").send(hello)
    return frame(b"\x91" * (STRANGERS_FRAME - 1) + b"\xc0")


def offers(epoch: int) -> Iterator[Event]:
    """Yield offers and withdrawals that take turns, without end."""
    number = 0
    while True:
        number += 1
        offer = Offer(resources={"cpu": str(number % 64 + 1), "memory": "64Gi", "pods": "100"})
        yield Advertise(epoch=epoch, seq=number, ttl=600, offer=offer)
        yield Withdraw(epoch=epoch, role="lender")


def review(shape: str) -> bytes:
    """Return a review of a new pod: with tolerations without number, or with a long text that has to be passed over."""
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    toleration = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    if shape == "tolerations":
        spec["tolerations"] = [toleration] * (REVIEW // len(json.dumps(toleration)) - 10)
    elif shape == "requirements":
        term = {"key": "zone", "operator": "In", "values": ["a"]}
        count = REVIEW // len(json.dumps(term)) - 10
        required = {"nodeSelectorTerms": [{"matchExpressions": [term] * count}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    else:
        spec["containers"][0]["args"] = ["x" * (REVIEW - 1000)]
    request = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "shop",
        "object": {"metadata": {"name": "a", "namespace": "shop"}, "spec": spec},
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def question(number: int, shape: str) -> bytes:
    """Return a question for an address: of a name that nobody asked for before, or one of a hundred parts."""
    name = f"q{number}.shop.svc.home.example" if shape == "new" else "x." * 100 + f"q{number}.example"
    labels = b"".join(bytes([len(one)]) + one.encode() for one in name.split("."))
    return struct.pack("!6H", number % 65536, 0x0100, 1, 0, 0, 0) + labels + b"\0\0\x01\0\x01"
