"""``who-has``: which clusters hold a copy of an object, since when, and for which pods."""

from __future__ import annotations

import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options, namespace_option
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.status.cluster_records import cluster_records
from liqod.cli.status.copies import COPIES, copies_of, kind_named
from liqod.cli.status.whoami import own_cluster
from liqod.model.ids import Key


@click.command("who-has")
@click.argument("wanted", metavar="KIND/NAME")
@namespace_option("object")
@cluster_options
def who_has(options: Options, wanted: str, namespace: str) -> None:
    """List the clusters that hold a copy of an object, since when, and for which pods.

    The answer is that of the functions which decide on copies: an object is copied to every cluster that has a pod of
    its namespace, unless its kind, its type or an annotation keeps it here.

    \b
    Examples:
      liqodctl who-has secret/db -n shop
      liqodctl who-has configmap/settings -n shop -o json
    """
    kind_name, slash, name = wanted.partition("/")
    if not slash or not name:
        raise CliError(errors.REFUSED, f"{wanted!r} is not KIND/NAME", "such as secret/db", errors.USAGE)
    kind = kind_named(kind_name)

    async def work(session: Session) -> None:
        facts = await cluster_records(session)
        me = await own_cluster(session)
        rows = await copies_of(session, facts, kind, Key(namespace, name), me.cluster_id)
        empty = f"no other cluster has the namespace {namespace}: the object is in this cluster only"
        session.table(rows, COPIES, beneath=["why", "pods"], empty=empty)
        session.publish({"object": f"{kind.setting}/{name}", "namespace": namespace, "copies": rows})

    in_cluster(options, work)
