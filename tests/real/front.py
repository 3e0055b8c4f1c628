"""A relay in front of an API server that can lie about the time: ``python -m tests.real.front DIRECTORY PORT``.

It ends TLS with the API server's own certificate and passes everything on. While there is a file ``skew`` in the
directory, with a number of seconds in it, the time that a SelfSubjectReview is stamped with is that much later.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

_STAMP = re.compile(rb'("creationTimestamp":")([-0-9T:]+Z)(")')
_FORM = "%Y-%m-%dT%H:%M:%SZ"


def reported(answer: bytes, skew: float) -> bytes:
    """Return an answer with its time shifted; it stays as long as it was."""
    if not skew or b'"SelfSubjectReview"' not in answer:
        return answer

    def shifted(found: re.Match[bytes]) -> bytes:
        when = datetime.strptime(found[2].decode(), _FORM).replace(tzinfo=UTC) + timedelta(seconds=skew)
        return found[1] + when.strftime(_FORM).encode() + found[3]

    return _STAMP.sub(shifted, answer)


def main(directory: Path, port: int) -> None:
    """Relay until ended."""
    front = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    front.load_cert_chain(directory / "apiserver.crt", directory / "apiserver.key")
    behind = ssl.create_default_context(cafile=str(directory / "ca.crt"))

    def skew() -> float:
        try:
            return float((directory / "skew").read_text())
        except FileNotFoundError:
            return 0.0

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        try:
            while content := await reader.read(1 << 16):
                writer.write(reported(content, skew()) if answers else content)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", 6443, ssl=behind)
        await asyncio.gather(pipe(reader, requests, answers=False), pipe(answers, writer, answers=True))

    async def serve() -> None:
        async with await asyncio.start_server(relay, port=port, ssl=front) as server:
            await server.serve_forever()

    asyncio.run(serve())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
