"""Makes the faults of the broken set-ups on two real clusters; each is undone when its block ends, come what may."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from liqod.agent.account.names import ACCOUNT, bound_secret_of
from liqod.fabric.agent.kernel.preflight import PATHS
from tests.real.borrowing import MILAN, ROME, Borrowing, crash, freeze, thaw
from tests.real.broken_setups.setups import NOWHERE, Fault, Moment
from tests.real.daemons import Daemon
from tests.real.manifests import pod
from tests.real.path import NAMESPACE, deployment, eventually
from tests.testbed.cluster import Cluster

Maker = Callable[[Borrowing, Fault], AbstractContextManager[None]]
ROOT: Final = Path(__file__).resolve().parents[3]
TABLE: Final = "inet broken"
VIRTUAL: Final = {"liqo.io/type": "virtual-node"}
BUSY: Final = "busy"
FRONT: Final = "7443"
EARLY: Final = "early"
QUOTA: Final = "broken"


def made(sides: Borrowing, fault: Fault) -> AbstractContextManager[None]:
    """Return the block inside of which a fault is there."""
    return MAKERS[fault.kind](sides, fault)


@contextmanager
def begun(sides: Borrowing, fault: Fault, moment: Moment, wait: Callable[[float], None]) -> Iterator[None]:
    """Have something going on when a block begins; the daemon that restarts is the one that nothing is done to."""
    home = sides[ROME].cluster
    with ExitStack() as stack:
        if moment.activity == "scale":
            stack.callback(_delete, home, "deployment", BUSY)
            home.apply(deployment(BUSY, 3))
        elif moment.activity == "restart":
            _restart(sides.other(fault.side))
        wait(moment.after)
        yield


@contextmanager
def _rules(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have rules of nftables on a host; the words are a hook and its rules, in turns."""
    cluster = sides[fault.side].cluster
    hooks, rules = fault.words[::2], fault.words[1::2]
    chains = " ".join(
        f"chain {hook} {{ type filter hook {hook} priority -300; {rule}; }};"
        for hook, rule in zip(hooks, rules, strict=True)
    )
    with ExitStack() as stack:
        stack.callback(cluster.run, ["sh", "-c", f"nft delete table {TABLE} || ! nft list table {TABLE} 2>/dev/null"])
        cluster.run(["nft", f"table {TABLE} {{ {chains} }}"])
        yield


@contextmanager
def _port(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Let no packet from or to a port pass a host, its own ones to itself included."""
    protocol, port = fault.words
    rule = f"{protocol} dport {port} drop; {protocol} sport {port} drop"
    with _rules(sides, Fault("rules", fault.side, ("input", rule, "output", rule))):
        yield


@contextmanager
def _forwarding(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have a host forward nothing."""
    cluster = sides[fault.side].cluster
    with ExitStack() as stack:
        stack.callback(cluster.run, ["sysctl", "-qw", "net.ipv4.ip_forward=1"])
        cluster.run(["sysctl", "-qw", "net.ipv4.ip_forward=0"])
        yield


@contextmanager
def _again(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have a program on a host that does the same again and again."""
    (script,) = fault.words
    host = sides[fault.side].cluster.host
    process = host.spawn("again", ["sh", "-c", f"while :; do {script} >/dev/null 2>&1; sleep 0.3; done"])
    try:
        yield
    finally:
        process.stop(2.0)


@contextmanager
def _killed(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have no daemon on a side."""
    daemon = sides[fault.side]
    with ExitStack() as stack:
        stack.callback(_restart, daemon)
        crash(daemon)
        yield


@contextmanager
def _frozen(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have a daemon that does nothing and ends nothing."""
    daemon = sides[fault.side]
    with ExitStack() as stack:
        stack.callback(thaw, daemon)
        freeze(daemon)
        yield


@contextmanager
def _no_nft(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have a host on which nft was never installed."""
    daemon = sides[fault.side]
    cluster = daemon.cluster
    program = shutil.which("nft", path=PATHS)
    assert program is not None, "nft is needed to take it away"
    with ExitStack() as stack:
        stack.callback(_restart, daemon)
        daemon.stop()
        cluster.run(["sh", "-c", "nft delete table inet liqod || true"])
        # What is there is no program any more; the mounts of a host are its own.
        cluster.host.run(["mount", "--bind", "/dev/null", program])
        stack.callback(cluster.host.run, ["umount", program])
        daemon.start()
        yield


@contextmanager
def _clock(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have an API server whose clock is some seconds ahead of the daemon's, from the daemon's start on."""
    (skew,) = fault.words
    daemon = sides[fault.side]
    directory = daemon.cluster.directory
    kubeconfig = daemon.kubeconfig.read_text()
    with ExitStack() as stack:
        stack.callback(_restart, daemon)
        stack.callback(daemon.kubeconfig.write_text, kubeconfig)
        daemon.stop()
        (directory / "skew").write_text(skew)
        stack.callback((directory / "skew").unlink, missing_ok=True)
        argv = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.real.front", str(directory), FRONT]
        front = daemon.cluster.spawn("front", argv)
        stack.callback(front.stop, 1.0)
        daemon.kubeconfig.write_text(kubeconfig.replace(":6443", f":{FRONT}"))
        daemon.start()
        yield


@contextmanager
def _rights(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have a daemon whose account may do next to nothing in its cluster."""
    daemon = sides[fault.side]
    with ExitStack() as stack:
        stack.callback(daemon.install)
        daemon.cluster.kubectl("delete", "clusterrolebinding", "liqod")
        yield


@contextmanager
def _credential(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have a daemon whose token has ended with its Secret."""
    daemon = sides[fault.side]
    with ExitStack() as stack:
        stack.callback(daemon.install)
        daemon.cluster.kubectl("delete", "secret", "-n", "liqo-system", bound_secret_of(ACCOUNT))
        yield


@contextmanager
def _quota(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have a pod that the lender's quota has no room for; the words are a resource, how much of it, and the pod."""
    resource, amount, name = fault.words
    home, lender, remote = sides[ROME].cluster, sides[MILAN].cluster, sides.remote()
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": QUOTA, "namespace": remote},
        "spec": {"hard": {resource: amount}},
    }
    with ExitStack() as stack:
        stack.callback(_delete, lender, "resourcequota", QUOTA, remote)
        lender.apply(quota)
        # A quota admits what it will until its use was counted.
        eventually("the quota counts", partial(_counts, lender, remote))
        stack.callback(_delete, home, "pod", name)
        home.apply(_pod(name))
        yield


@contextmanager
def _image(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have an offloaded pod whose image is nowhere."""
    (name,) = fault.words
    home = sides[ROME].cluster
    body = _pod(name)
    body["spec"]["containers"][0]["image"] = "localhost/nowhere:1"
    with ExitStack() as stack:
        stack.callback(_delete, home, "pod", name)
        home.apply(body)
        yield


@contextmanager
def _unlabelled(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have a pod that wants to go elsewhere, in a namespace that is not offloaded."""
    (name,) = fault.words
    home = sides[ROME].cluster
    with ExitStack() as stack:
        stack.callback(home.kubectl, "delete", "namespace", EARLY, "--ignore-not-found", "--timeout=100s")
        home.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": EARLY}})
        eventually("its account", lambda: home.get("serviceaccount", "default", "-n", EARLY))
        home.apply(_pod(name, EARLY))
        yield


@contextmanager
def _standby(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have a second daemon that stood by and was killed; in the end it stands by again, and leaves in order."""
    second = sides.second(fault.side)
    with ExitStack() as stack:
        stack.callback(second.stop)
        second.start()
        eventually("the second daemon stands by", partial(_stands_by, second, 0))
        said = len(second.log.read_text())
        stack.callback(eventually, "the second daemon stands by again", partial(_stands_by, second, said))
        stack.callback(second.start)
        crash(second)
        yield


@contextmanager
def _webhook(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have the API server call the webhook at an address that nobody has."""
    daemon = sides[fault.side]
    before = daemon.config.read_text()
    with ExitStack() as stack:
        stack.callback(_restart, daemon)
        stack.callback(daemon.config.write_text, before)
        daemon.stop()
        daemon.config.write_text(f'{before}\n[webhook]\nurl = "https://{NOWHERE}:5873"\n')
        daemon.start()
        yield


@contextmanager
def _no_api(sides: Borrowing, fault: Fault) -> Iterator[None]:
    """Have a side without its control plane; nodes and pods go on."""
    cluster = sides[fault.side].cluster
    with ExitStack() as stack:
        stack.callback(cluster.restore_control_plane, kubelet=True)
        cluster.lose_control_plane()
        yield


MAKERS: Final[Mapping[str, Maker]] = {
    "again": _again,
    "clock": _clock,
    "credential": _credential,
    "forwarding": _forwarding,
    "frozen": _frozen,
    "image": _image,
    "killed": _killed,
    "no api": _no_api,
    "no nft": _no_nft,
    "port": _port,
    "quota": _quota,
    "rights": _rights,
    "rules": _rules,
    "standby": _standby,
    "unlabelled": _unlabelled,
    "webhook": _webhook,
}
"""How each kind of fault is made."""


def _restart(daemon: Daemon) -> None:
    daemon.stop()
    daemon.start()


def _delete(cluster: Cluster, kind: str, name: str, namespace: str = NAMESPACE) -> None:
    words = ("--ignore-not-found", "--grace-period=1", "--timeout=100s")
    cluster.kubectl("delete", kind, name, "-n", namespace, *words)


def _pod(name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
    """Return a pod for the virtual node, with small requests."""
    body = pod(name, ["sh", "-c", "while :; do sleep 1; done"], namespace=namespace, nodeSelector=dict(VIRTUAL))
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "5m", "memory": "8Mi"}}
    return body


def _counts(cluster: Cluster, namespace: str) -> bool:
    return bool(cluster.get("resourcequota", QUOTA, "-n", namespace).get("status", {}).get("used"))


def _stands_by(daemon: Daemon, said: int) -> bool:
    return re.search("standby|stands by", daemon.log.read_text()[said:], re.IGNORECASE) is not None
