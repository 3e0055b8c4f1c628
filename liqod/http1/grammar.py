"""Checks the bytes of a head and of a chunk's frame before h11 parses them.

h11 repairs what RFC 9112 lets a recipient repair: bare line feeds, folded lines, equal Content-Lengths, control
characters in values, chunk extensions, trailers. Its events do not show that. Two parsers in a chain may repair
them differently (request smuggling, response splitting: RFC 9112, section 11), so all of that is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from liqod.http1.errors import Malformed

CheckHead = Callable[[bytes, int], int | None]

MAX_LENGTH_DIGITS: Final = 10
"""Digits of a Content-Length: a number of any length takes quadratic time to parse."""
MAX_SIZE_DIGITS: Final = 8
"""Hex digits of a chunk's size (RFC 9112, section 7.1), which has no limit of its own."""

# Possessive quantifiers do not backtrack: the time is linear in the length of the head.
_HEAD: Final = re.compile(
    rb"[\x20-\x7e\x80-\xff]++\r\n"
    rb"(?:[A-Za-z0-9!#$%&'*+.^_`|~-]++:"
    rb"[\t\x20]*+(?:[\x21-\x7e\x80-\xff]++(?:\x20++[\x21-\x7e\x80-\xff]++)*+)?[\t\x20]*+\r\n)*+"
    rb"\r\n"
)
_REQUEST_LINE: Final = re.compile(rb"([A-Za-z0-9!#$%&'*+.^_`|~-]+) ([\x21-\x7e]+) HTTP/1\.1\r\n")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] [1-5][0-9][0-9][ \r]")
_LENGTHS: Final = re.compile(rb"\ncontent-length:([^\r]*)", re.IGNORECASE)
_CODING: Final = re.compile(rb"\ntransfer-encoding:", re.IGNORECASE)
_DIGITS: Final = re.compile(rb"[0-9]{1,%d}" % MAX_LENGTH_DIGITS)
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,%d})\r\n" % MAX_SIZE_DIGITS)


def head_end(data: bytes, maximum: int, searched: int = 0) -> int:
    """Return where the head ends (behind the empty line), 0 while it is not complete.

    In the first ``searched`` bytes it does not end. Raises Malformed for a head of more than ``maximum`` bytes.
    """
    end = data.find(b"\r\n\r\n", max(0, searched - 3))
    if end > maximum or (end < 0 and len(data) > maximum):
        raise Malformed(431, f"the head of a message is longer than {maximum} bytes")
    return end + 4 if end >= 0 else 0


def check_request_head(head: bytes, max_headers: int) -> int | None:
    """Check the complete head of a request; returns the length of its body as ``_check_fields`` does."""
    if _REQUEST_LINE.match(head) is None:
        raise Malformed(505, "a request is METHOD, path and HTTP/1.1, with one space between them")
    return _check_fields(head, max_headers)


def request_line(line: bytes) -> tuple[bytes, bytes] | None:
    """Return method and target of the first line of a request, None where it is not exactly that."""
    match = _REQUEST_LINE.fullmatch(line)
    return (match[1], match[2]) if match is not None else None


def check_response_head(head: bytes, max_headers: int) -> int | None:
    """Check the complete head of a response; returns the length of its body as ``_check_fields`` does."""
    if _STATUS_LINE.match(head) is None:
        raise Malformed(502, "the answer is not HTTP/1.1")
    return _check_fields(head, max_headers)


def _check_fields(head: bytes, max_headers: int) -> int | None:
    """Return the Content-Length, 0 where there is none, None for a chunked body; raises Malformed."""
    if head.count(b"\n") - 2 > max_headers:
        raise Malformed(431, f"a head has at most {max_headers} headers")
    if _HEAD.fullmatch(head) is None:
        raise Malformed(
            400, "a header is a name, a colon and a value of printable characters, on one line that ends with CR LF"
        )
    lengths = _LENGTHS.findall(head)
    chunked = _CODING.search(head) is not None
    if len(lengths) > 1 or (chunked and lengths):
        raise Malformed(400, "a body has one Content-Length or is chunked, and nothing else")
    if chunked:
        return None
    if not lengths:
        return 0
    digits = lengths[0].strip(b"\t ")
    if _DIGITS.fullmatch(digits) is None:
        raise Malformed(400, f"Content-Length is one number of at most {MAX_LENGTH_DIGITS} digits")
    return int(digits)


def chunk_frame(data: bytes, *, first: bool) -> tuple[int, int] | None:
    """Return the size of the chunk that begins here and the bytes of its frame; None while that is not complete.

    ``first``: no chunk comes before, whose end would have to be read. The frame of the last chunk, of size 0, includes
    the empty line that ends the body. Raises Malformed.
    """
    start = 0 if first else 2
    if not b"\r\n".startswith(data[:start]):
        raise Malformed(400, "a chunk does not end where it says")
    match = _SIZE.match(data, start)
    if match is None:
        if b"\n" in data[start:] or len(data) >= start + MAX_SIZE_DIGITS + 2:
            raise Malformed(
                400, f"a chunk begins with its size in at most {MAX_SIZE_DIGITS} hex digits and nothing else"
            )
        return None
    size, frame = int(match[1], 16), match.end()
    if size == 0:
        end = data[frame : frame + 2]
        if not b"\r\n".startswith(end):
            raise Malformed(400, "a chunked body ends without trailers")
        if len(end) < 2:
            return None
        frame += 2
    return size, frame
