"""``web``: a page in the browser that shows what ``status`` and ``explain`` say."""

from __future__ import annotations

from typing import Any

import click
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import deferLater

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.web.cluster_reader import ClusterReader
from liqod.cli.web.server import HERE, Pages, site


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1 [any free one].")
@click.option(
    "--for", "seconds", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="End after so long."
)
@cluster_options
def web(options: Options, port: int, seconds: float | None) -> None:
    """Show a live page with all clusters, and one for each peer, until Ctrl-C.

    It is served on 127.0.0.1, reads with your own rights, and changes nothing. Who has its whole address can read
    it.

    \b
    Examples:
      liqodctl web
      liqodctl web --port 8088            for ssh -L 8088:127.0.0.1:8088 HOST
    """

    async def work(session: Session) -> None:
        listening, url = serve(session, port)
        try:
            session.say("The page is at this address, until Ctrl-C:")
            session.print_line(url)
            session.publish({"url": url})
            await (Deferred() if seconds is None else deferLater(session.reactor, seconds))
        finally:
            await maybeDeferred(listening.stopListening)

    in_cluster(options, work)


def serve(session: Session, port: int = 0) -> tuple[IListeningPort, str]:
    """Serve the page of a session's cluster; return the listening port and the address. Raises CliError."""
    pages = Pages(ClusterReader(session))
    try:
        listening = session.reactor.listenTCP(port, site(pages), interface=HERE)
    except CannotListenError as error:
        raise CliError(
            errors.IN_USE, f"port {port} cannot be used: {error.socketError}", "choose another --port, or none"
        ) from None
    address: Any = listening.getHost()
    return listening, f"http://{HERE}:{address.port}/{pages.token}/"
