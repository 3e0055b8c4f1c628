"""PostgreSQL in pods: a primary with a volume, a streaming replica, and a client that writes numbered rows."""

from __future__ import annotations

from typing import Any, Final

from tests.real.path import NAMESPACE
from tests.real.programs.workloads import bare_pod, claim, container, of_database, pod_spec, workload

PRIMARY: Final = "pg"
REPLICA: Final = "pg-replica"
WRITER: Final = "writer"
PORT: Final = 5432
ROLE: Final = "role"
LEADS: Final = {ROLE: "primary"}
"""What the pod has to which the service leads, and no other one."""

_PROGRAMS: Final = "PATH=$(echo /usr/lib/postgresql/*/bin):$PATH; export PATH"
_RUN: Final = (
    "exec postgres -D /data/pg -c listen_addresses='*' -c unix_socket_directories=/tmp -c wal_level=replica"
    " -c max_wal_senders=8 -c hot_standby=on -c wal_keep_size=256MB"
)
# What an interrupted start has left is made again: only a whole directory gets its name.
_PRIMARY: Final = f"""{_PROGRAMS}
set -e
if [ ! -d /data/pg ]; then
  rm -rf /data/new
  initdb -D /data/new -U postgres -A trust --no-locale -E UTF8
  echo 'host all all all trust' >> /data/new/pg_hba.conf
  echo 'host replication all all trust' >> /data/new/pg_hba.conf
  mv /data/new /data/pg
fi
{_RUN}
"""
_REPLICA: Final = f"""{_PROGRAMS}
set -e
if [ ! -d /data/pg ]; then
  rm -rf /data/new
  pg_basebackup -h $ADDRESS -p {PORT} -U postgres -D /data/new -R -X stream -c fast
  chmod 0700 /data/new
  mv /data/new /data/pg
fi
{_RUN}
"""
# One connection for all rows, as long as it holds. A number is in "acknowledged" when the server has said that its
# transaction is committed; what was sent last may have been committed all the same, and is asked for again under the
# same number, which the table allows once.
_WRITER: Final = f"""{_PROGRAMS}
trap '' PIPE
cd /data
touch acknowledged broken
n=$(tail -n 1 acknowledged); n=${{n:-0}}
while :; do
  [ -p statements ] || mkfifo statements
  : > answers
  psql -h $ADDRESS -p {PORT} -U postgres -AtqX -v ON_ERROR_STOP=1 <statements >>answers 2>errors &
  session=$!
  exec 3>statements
  while kill -0 $session 2>/dev/null; do
    next=$((n + 1))
    echo "insert into ledger values ($next) on conflict do nothing; select 'done $next';" >&3
    until grep -qx "done $next" answers; do
      kill -0 $session 2>/dev/null || break
      sleep 0.05
    done
    grep -qx "done $next" answers || break
    n=$next
    echo $n >> acknowledged
    : > answers
    sleep 0.1
  done
  exec 3>&-
  kill $session 2>/dev/null
  wait $session 2>/dev/null
  echo "after $n: $(tail -n 1 errors)" >> broken
  sleep 1
done
"""


def primary() -> dict[str, Any]:
    """Return the StatefulSet of the primary, whose claim follows it."""
    main = container(_PRIMARY, port=PORT, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    made = workload(
        "StatefulSet",
        PRIMARY,
        pod_spec(main, {"liqo.io/type": "virtual-node"}, **of_database(terminationGracePeriodSeconds=30)),
        volumeClaimTemplates=[claim("data")],
    )
    made["spec"]["template"]["metadata"]["labels"].update(LEADS)
    return made


def replica(address: str, selector: dict[str, str]) -> dict[str, Any]:
    """Return the pod that follows the primary at an address; it makes its copy when it starts."""
    return bare_pod(REPLICA, _with_data(_REPLICA, address, selector, port=PORT), **{ROLE: "replica"})


def service() -> dict[str, Any]:
    """Return the service that leads to the primary, whichever pod that is."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": PRIMARY, "namespace": NAMESPACE},
        "spec": {"selector": dict(LEADS), "ports": [{"port": PORT}]},
    }


def writer(address: str, selector: dict[str, str], name: str = WRITER) -> dict[str, Any]:
    """Return the pod that writes rows; ``acknowledged`` and ``broken`` in its volume say what came of it."""
    return bare_pod(name, _with_data(_WRITER, address, selector))


def _with_data(script: str, address: str, selector: dict[str, str], *, port: int = 0) -> dict[str, Any]:
    """Return the specification of a pod with a script that calls a database, and a place of its own for data."""
    mounts = [{"name": "data", "mountPath": "/data"}]
    main = container(script, port=port, env=[{"name": "ADDRESS", "value": address}], volumeMounts=mounts)
    return pod_spec(main, selector, **of_database(volumes=[{"name": "data", "emptyDir": {}}]))


def sql(statement: str, address: str = "127.0.0.1") -> tuple[str, ...]:
    """Return the words that carry out a statement, in any pod of the image."""
    psql = f'{_PROGRAMS}; exec psql -h {address} -p {PORT} -U postgres -AtqX -v ON_ERROR_STOP=1 -c "$0"'
    return ("sh", "-c", psql, statement)
