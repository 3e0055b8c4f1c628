"""A probe that runs in the containers of a variation, and prints what it is, reads and reaches as a line of JSON.

It is a script of busybox' shell, so that it needs nothing but the image of the test clusters.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import evolve

from tests.variations.variation import ForbiddenObject

BEGIN: Final = '{"probe":'
"""What the line begins with."""
VOLUMES: Final = "/v"
"""Where the volumes of a pod are mounted, each in a folder of its name."""
CANARY: Final = "canary-of-the-node"
"""What is written in files that no tenant reads."""
WEB: Final = ["sh", "-c", "trap 'exit 0' TERM; httpd -f -p 8080 -h /www & wait"]
"""What a pod runs that others should not reach: a server at port 8080."""

# Kubernetes makes one dollar sign of two in a command, so that the shell's own number is not used.
# Words: name of the container, "stay" for one that has to run on, a file of the node, then NAME=ADDRESS:PORT.
# A network plugin closes the ways of a new pod a moment after it has begun: what counts is reached in each round.
SCRIPT: Final = r"""
trap 'exit 0' TERM
name=$1 stay=$2 file=$3
shift 3
status() { sed -n "s/^$1:[[:space:]]*//p" /proc/self/status; }
texts() { tr -cd 'A-Za-z0-9._/\n-' | awk 'NF { printf "%s\"%s\"", sep, $0; sep = "," }'; }
is() { if "$@"; then printf true; else printf false; fi; }
# For root test says that all can be written, whatever the mount says.
writable() { ! grep -q ' /proc/sys proc ro' /proc/self/mounts; }
{
printf '{"probe":"%s","uid":%s,"gid":%s' "$name" "$(id -u)" "$(id -g)"
printf ',"capabilities":"%s","bounding":"%s"' "$(status CapEff)" "$(status CapBnd)"
printf ',"seccomp":%s,"no_new_privileges":%s' "$(status Seccomp)" "$(status NoNewPrivs)"
printf ',"namespaces":{'
sep=
for kind in pid net ipc uts mnt; do
  printf '%s"%s":"%s"' "$sep" $kind "$(readlink /proc/self/ns/$kind | tr -cd 0-9)"
  sep=,
done
printf '},"devices":%s,"masked":%s,"writable":%s' \
  "$(ls -l /dev | grep -c '^b')" "$(is test -c /proc/kcore)" "$(is writable)"
printf ',"files":['
for place in "$file" /v/*"$file" /v/*/canary; do
  if grep -qs canary-of-the-node "$place"; then echo "$place"; fi
done | texts
printf '],"sockets":['
for place in /v/* /run/containerd/containerd.sock; do
  if [ -S "$place" ]; then echo "$place"; fi
done | texts
printf '],"tokens":['
for place in /var/run/secrets/kubernetes.io/serviceaccount/token /v/*/token /v/*/t; do
  if [ -s "$place" ]; then cat "$place"; echo; fi
done | texts
printf '],"reached":['
left="$*"
for round in 1 2 3 4; do
  found=
  for target in $left; do
    to=${target#*=}
    if nc -w 2 "${to%:*}" "${to##*:}" </dev/null >/dev/null 2>&1; then found="$found $target"; fi
  done
  left=$found
  if [ -z "$left" ] || [ "$round" = 4 ]; then break; fi
  sleep 3
done
for target in $left; do echo "${target%%=*}"; done | texts
printf ']}\n'
} 2>/dev/null
if [ "$stay" = stay ]; then while :; do sleep 1; done; fi
"""


def command(name: str, file: str, targets: Mapping[str, str], *, stay: bool = False) -> list[str]:
    """Return the command of a container: its name, a file of the node, and addresses with ports by their names."""
    words = [f"{one}={to}" for one, to in targets.items()]
    return ["sh", "-c", SCRIPT, "probe", name, "stay" if stay else "end", file, *words]


def with_probe(spec: Mapping[str, Any], file: str, targets: Mapping[str, str]) -> dict[str, Any]:
    """Return a pod's spec in which each container is a probe with all volumes mounted; it ends when they have."""
    made: dict[str, Any] = copy.deepcopy({"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, **spec})
    volumes = [one["name"] for one in made.get("volumes") or ()]
    mounts = [{"name": one, "mountPath": f"{VOLUMES}/{one}"} for one in volumes]
    for one in _containers(made):
        one["command"] = command(one["name"], file, targets, stay=one.get("restartPolicy") == "Always")
        # As little as counts, so that a batch of them has room.
        one.setdefault("resources", {"requests": {"cpu": "5m", "memory": "8Mi"}})
        if mounts:
            one["volumeMounts"] = mounts
    return made


def probing(forbidden: ForbiddenObject, file: str, targets: Mapping[str, str]) -> ForbiddenObject:
    """Return a forbidden pod, and the harmless one, in which each container is a probe."""

    def changed(body: Mapping[str, Any]) -> dict[str, Any]:
        return {**body, "spec": {"pod": with_probe(body["spec"]["pod"], file, targets)}}

    return evolve(forbidden, desired=changed(forbidden.desired), harmless=changed(forbidden.harmless))


def _containers(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        yield from spec.get(kind) or ()
