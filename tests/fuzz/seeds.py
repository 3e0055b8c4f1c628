"""Makes the corpus: ``python -m tests.fuzz.seeds``. What a fuzzer begins with, and what every run of the tests repeats.

Inputs that once broke something are kept in the same folders under the name of what they broke.
"""

from __future__ import annotations

from pathlib import Path

from liqod.identity.pairing import Token
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.offer import Offer
from liqod.wire.codec import encode
from liqod.wire.events import Advertise, Bye, Event, Join
from liqod.wire.framing import Limits, frame
from tests.wire.pairs import ALPHA, BETA, ORDINARY

CORPUS = Path(__file__).parent / "corpus"


def main() -> None:
    """Write the files."""
    limits = Limits()
    events: list[Event] = [ALPHA, BETA, *ORDINARY, Join("0123456789abcdef", "5" * 64), Bye("Stopping", "", 1.5)]
    absurd = {"cpu": "-1", "memory": "9e99Ki", "pods": "NaN", "a/b/c": "1", "x" * 300: "1", "nvidia.com/gpu": "0.5"}
    offers = [Offer(resources={name: value}) for name, value in absurd.items()]
    offers.append(Offer(labels={"kubernetes.io/hostname": "n"}, prices={"cpu": "1e-9"}, storage_classes=["s" * 64]))
    seeds: dict[str, list[bytes]] = {
        "payload": [encode(event, limits) for event in events],
        "stream": [b"\x07" + b"".join(frame(encode(event, limits)) for event in events[:3]), b"\x00\xff\xff\xff\xff"],
        "conversation": [bytes(range(24)), b"\x00\xc0\xc0\x02\x03\x00\x01", bytes(reversed(range(128)))],
        "txt": [_txt(b"proto=1", b"id=milan", b"name=milan", b"fp=sha256:" + b"0" * 64), _txt(b"proto=2"), _txt(b"=")],
        "token": [
            Token(
                "0123456789abcdef",
                ClusterID("milan"),
                "milan",
                Fingerprint("sha256:" + "0" * 64),
                ["192.0.2.1:5872"],
                bytes(32),
            ).text.encode(),
            b"liqo1.",
        ],
        "offer": [encode(Advertise(1, number, 1800, made), limits) for number, made in enumerate(offers)],
        "quantity": [b"1.5Gi", b"500m", b"2e3", b"-1", b"9" * 40, b"1e99", b".5E", b"0.0000000001"],
        "new-key": [bytes(96), bytes(range(96)), b"A" * 44 + b"B" * 88],
    }
    for name, contents in seeds.items():
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(contents):
            (folder / f"seed-{number:02}").write_bytes(content)


def _txt(*strings: bytes) -> bytes:
    return b"".join(bytes((len(string),)) + string for string in strings)


if __name__ == "__main__":
    main()
