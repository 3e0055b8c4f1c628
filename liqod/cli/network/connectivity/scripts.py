"""What the containers of ``test`` run: lines of shell for busybox, made of numbers and our own names alone. Pure.

A container ends with 0 when it was answered, 1 when it was not, 2 when it could not try; a sentence is in its
termination message, which is a part of the pod's status and so needs no access to the logs of the peer's pods.
"""

from __future__ import annotations

from typing import Final

from liqod.cli.network.connectivity.cases import Case

PORT: Final = 5001
BYTES: Final = 1 << 20
"""Bytes of the large answer: many packets of any MTU."""
ATTEMPTS: Final = 6
"""Attempts to be answered: rules of new services and pods take seconds to reach every node."""
MISSES: Final = 2
"""Attempts in a row without an answer that are silence: a single one may be a lost packet."""

_COMMON: Final = """\
say() { echo "$1" | head -c 300 > /dev/termination-log; echo "$1"; exit "$2"; }
ask() { printf 'GET %s HTTP/1.0\\r\\nHost: %s\\r\\n\\r\\n' "$3" "$host" | timeout "$4" nc -w 5 "$1" "$2" 2>&1; }
"""
_FIND: Final = """\
find() {
  full=$1.$(awk '/^search/ { print $2; exit }' /etc/resolv.conf)
  nslookup "$full" 2>&1 | awk '/^Name:/ { f = 1 } f && /^Address/ { sub(/^Address[ 0-9]*: */, ""); print $1; exit }'
}
"""
_WGET: Final = """\
d=/var/run/secrets/kubernetes.io/serviceaccount
[ -s $d/token ] || say "no token of a service account is mounted" 2
name=$KUBERNETES_SERVICE_HOST; port=$KUBERNETES_SERVICE_PORT
a=$(awk -v h="$name" '!/^#/ { for (i = 2; i <= NF; i++) if ($i == h) { print $1; exit } }' /etc/hosts)
a=${a:-$name}; shown=$a
case "$a" in *:*) shown="[$a]";; esac
for i in $(seq 1 ATTEMPTS); do
  out=$(timeout 10 wget -q -O - --no-check-certificate --header "Authorization: Bearer $(cat $d/token)" \
    "https://$shown:$port/api/v1/namespaces/NAMESPACE" 2>&1)
  case "$out" in
    *" 403 "*|*'"Namespace"'*) say "home's API server knows the pod's account" 0;;
    *" 401 "*) last="an API server answers at $a that does not know the pod's account, so it is not home's";;
    *) out=$(ask "$a" "$port" / 8)
      case "$out" in
        *"HTTP request to an HTTPS server"*) say "an API server answers at $a; the image cannot ask by TLS whose" 0;;
        *) last="no answer from $name ($a) port $port";;
      esac;;
  esac
  sleep 1
done
say "$last" 1
"""


def server(identity: str, *, large: bool) -> str:
    """Return what a server runs: it serves its identity, and ``BYTES`` of zeros if ``large``."""
    data = f"dd if=/dev/zero of=/tmp/www/data bs={BYTES} count=1 2>/dev/null; " if large else ""
    page = f"mkdir -p /tmp/www; echo '{identity}' > /tmp/www/index.html; "
    return f"{page}{data}exec busybox httpd -f -p {PORT} -h /tmp/www"


def client(case: Case, identity: str, place: str, namespace: str) -> str:
    """Return what a container runs.

    ``place`` is the address that the case needs, with a port behind a space where it is not the server's; empty for
    what only the pod itself can find out: its services' addresses, its host's, those behind names.
    """
    if case.by == "api":
        return _COMMON + "host=api\n" + _WGET.replace("ATTEMPTS", str(ATTEMPTS)).replace("NAMESPACE", namespace)
    address, _, port = place.partition(" ")
    target = case.subject or case.server
    lines = [_COMMON, _FIND, f"host={target}.{namespace}.example", f"p={port or PORT}"]
    lines.append(f"address() {{ {_finding(case, address, target)}; }}")
    if case.silence:
        return "\n".join([*lines, _SILENCE.replace("IDENTITY", identity)])
    return "\n".join([*lines, (_LARGE if case.large else _ANSWER).replace("IDENTITY", identity)])


def _finding(case: Case, address: str, target: str) -> str:
    """Return what prints the address to call, at each attempt again: what is new may not be known at once."""
    if address:
        return f"echo {address}"
    if case.by == "node":
        return 'echo "$HOST_IP"'
    if case.by == "service":
        # Kubernetes gives a container the addresses of its namespace's services that were there when it started.
        return f'if [ -n "${_variable(target)}" ]; then echo "${_variable(target)}"; else find {target}; fi'
    return f"find {target}"


def _variable(service: str) -> str:
    return f"{service.upper().replace('-', '_')}_SERVICE_HOST"


_ANSWER: Final = f"""\
for i in $(seq 1 {ATTEMPTS}); do
  a=$(address)
  if [ -z "$a" ]; then last="its name is not found"; else
    out=$(ask "$a" "$p" /index.html 8)
    case "$out" in
      *"IDENTITY"*) say "answered by $a at attempt $i" 0;;
      *"HTTP/1"*) last="$a port $p is answered by something else: $(echo "$out" | head -n 1)";;
      *) last="no answer from $a port $p${{out:+: $(echo "$out" | tail -n 1)}}";;
    esac
  fi
  sleep 1
done
say "$last" 1
"""
_LARGE: Final = f"""\
for i in 1 2 3; do
  a=$(address)
  n=$(ask "$a" "$p" /data 12 | wc -c)
  [ "$n" -ge {BYTES} ] && say "$n bytes came from $a at attempt $i" 0
  sleep 1
done
say "$n of {BYTES} bytes came from $a port $p" 1
"""
_SILENCE: Final = f"""\
missed=0
for i in $(seq 1 {2 * ATTEMPTS}); do
  a=$(address)
  if [ -n "$a" ]; then
    case "$(ask "$a" "$p" /index.html 5)" in *"IDENTITY"*) missed=0;; *) missed=$((missed + 1));; esac
  fi
  [ "$missed" -ge {MISSES} ] && say "no answer from $a port $p" 1
  sleep 1
done
[ -n "$a" ] || say "its name is not found" 2
say "answered by $a at attempt $i" 0
"""
