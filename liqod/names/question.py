"""Reads the question of a DNS message as a pod sends it, and writes headers. Pure.

A question has neither compressed names nor records beside EDNS's, so that reading one costs a walk over its labels and
nothing more, whatever a pod sends. Sources: RFC 1035, 4.1; RFC 6891.
"""

from __future__ import annotations

import struct
from typing import Final

from attrs import frozen

HEADER: Final = struct.Struct("!HHHHHH")
_TAIL: Final = struct.Struct("!HH")
_OPT: Final = struct.Struct("!BHHIH")
SMALLEST: Final = 512
"""Bytes of an answer by UDP where the client says nothing else (RFC 1035, 2.3.4)."""
LARGEST: Final = 1232
"""Bytes of a message by UDP at most: what no network fragments (DNS flag day 2020)."""
MAX_QUESTION: Final = 1024
"""Bytes of a question that is read; a name takes 255 of them, the options of EDNS a few dozen."""

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = range(6)
_IN: Final = 1
_QR, _TC, _RD, _RA, _CD = 0x8000, 0x0200, 0x0100, 0x0080, 0x0010
_OPCODE: Final = 0x7800
_OPT_TYPE: Final = 41
_DO: Final = 0x8000
_META_TYPES: Final = range(128, 256)
"""TKEY, TSIG, IXFR, AXFR, MAILB, MAILA and ANY (RFC 6895, 3.1): no records of a name, or all at once; 0 is no type."""
_PLAIN: Final = frozenset(range(0x21, 0x7F)) - frozenset(b'."\\')


@frozen
class Edns:
    """The client's EDNS: how large a message it takes by UDP, and whether it wants signatures (DO)."""

    size: int
    signed: bool


@frozen
class Question:
    """One question: the name in lower case, the type, and the bytes of the question section as they came."""

    id: int
    flags: int
    name: str
    kind: int
    section: bytes
    edns: Edns | None

    @property
    def by_udp(self) -> int:
        """The bytes of an answer that the client takes by UDP."""
        return SMALLEST if self.edns is None else min(max(self.edns.size, SMALLEST), LARGEST)

    def answer(self, code: int, *, truncated: bool = False) -> bytes:
        """Return a message without records: a refusal, a failure, or one that says to ask by TCP."""
        return self.head(code, truncated=truncated) + self.section + opt(self.edns)

    def head(self, code: int, answers: int = 0, authority: int = 0, *, more: int = 0, truncated: bool = False) -> bytes:
        """Return the header of an answer with so many records; EDNS's own is counted here."""
        flags = _QR | (self.flags & (_RD | _CD)) | _RA | (_TC if truncated else 0) | code
        return HEADER.pack(self.id, flags, 1, answers, authority, more + (self.edns is not None))

    def asked(self, number: int, name: str | None = None) -> bytes:
        """Return the question for another server, under an ID, by its own name or another one."""
        section = self.section if name is None else wire(name) + self.section[-4:]
        flags = _RD | (self.flags & _CD)
        return HEADER.pack(number, flags, 1, 0, 0, int(self.edns is not None)) + section + opt(self.edns)


@frozen
class RejectedQuestion:
    """A message that is not answered otherwise than by this one; empty: not at all."""

    reply: bytes


def read(data: bytes) -> Question | RejectedQuestion:
    """Return the question of a message, or what is to be said to its sender; raises nothing."""
    if len(data) < HEADER.size:
        return RejectedQuestion(b"")
    number, flags, questions, answers, authority, more = HEADER.unpack_from(data)
    if flags & _QR:
        return RejectedQuestion(b"")  # an answer: two servers would talk without end
    if flags & _OPCODE:
        return _rejected(number, flags, NOTIMP)
    if questions != 1 or answers or authority or more > 1 or len(data) > MAX_QUESTION:
        return _rejected(number, flags, FORMERR)
    end = _end_of_name(data)
    if end is None or end + _TAIL.size > len(data):
        return _rejected(number, flags, FORMERR)
    kind, klass = _TAIL.unpack_from(data, end)
    name = _text(data[HEADER.size : end])
    end += _TAIL.size
    section = data[HEADER.size : end]
    edns = None
    if more:
        edns = _edns(data, end)
        if edns is None:
            return _rejected(number, flags, FORMERR)
    elif end != len(data):
        return _rejected(number, flags, FORMERR)
    if name is None or klass != _IN or kind in _META_TYPES or kind in (0, _OPT_TYPE):
        return RejectedQuestion(Question(number, flags, "", kind, section, None).answer(REFUSED))
    return Question(number, flags, name, kind, section, edns)


def opt(edns: Edns | None) -> bytes:
    """Return EDNS's own record for a message of ours; empty where the client has none (RFC 6891, 7)."""
    if edns is None:
        return b""
    return _OPT.pack(0, _OPT_TYPE, LARGEST, _DO if edns.signed else 0, 0)


def wire(name: str) -> bytes:
    """Return a name as labels with their lengths; labels are 1 to 63 characters of ASCII."""
    return b"".join(bytes([len(one)]) + one.encode("ascii") for one in name.split(".") if one) + b"\0"


def is_answer_to(data: bytes, number: int, question: bytes) -> bool:
    """Return whether a message answers a question that was sent under an ID: the same ID, and the same question."""
    if len(data) < HEADER.size + len(question):
        return False
    got, flags, questions, *_ = HEADER.unpack_from(data)
    section = data[HEADER.size : HEADER.size + len(question)]
    return got == number and bool(flags & _QR) and not flags & _OPCODE and questions == 1 and section == question


def is_truncated(data: bytes) -> bool:
    """Return whether a message says that it was truncated."""
    return bool(HEADER.unpack_from(data)[1] & _TC)


def _rejected(number: int, flags: int, code: int) -> RejectedQuestion:
    return RejectedQuestion(HEADER.pack(number, _QR | (flags & (_OPCODE | _RD)) | code, 0, 0, 0, 0))


def _end_of_name(data: bytes) -> int | None:
    """Return where the name behind the header ends; None for one that is too long, or compressed."""
    position = HEADER.size
    while position < len(data):
        length = data[position]
        position += 1
        if length == 0:
            return position if position - HEADER.size <= 255 else None
        if length > 63:
            return None
        position += length
    return None


def _text(name: bytes) -> str | None:
    """Return a name in lower case; None where a label has a character that would read as another name."""
    labels = []
    position = 0
    while length := name[position]:
        label = name[position + 1 : position + 1 + length]
        if not _PLAIN.issuperset(label):
            return None
        labels.append(label.decode("ascii").lower())
        position += 1 + length
    return ".".join(labels)


def _edns(data: bytes, position: int) -> Edns | None:
    """Return what is behind the question, EDNS's record alone; None for anything else, or another version."""
    if len(data) < position + _OPT.size:
        return None
    root, kind, size, extended, length = _OPT.unpack_from(data, position)
    if root or kind != _OPT_TYPE or position + _OPT.size + length != len(data) or (extended >> 16) & 0xFF:
        return None
    return Edns(size, bool(extended & _DO))
