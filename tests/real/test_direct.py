"""Pods of one home at two lenders: straight by the tunnel between these, or through home where that is not to be.

All three clusters have the same network of pods. Each lender calls, by a service of home, home's pod at the other one;
what passes home's own device is counted there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Final

from liqod.model.names import REFLECTED_SLICE, remote_namespace
from tests.real.daemons import Daemon, HostDaemon
from tests.real.lenders import LENDERS, LendersTests
from tests.real.manifests import pod, service
from tests.real.path import NAMESPACE, enabled_namespace, eventually, is_running, live_pods, peer_of, trust_each_other
from tests.real.test_network import FETCH_LARGE

PORT: Final = 8080
SIZE: Final = 4
"""Megabytes of a transfer: far more than all that crosses home's device beside it."""
LITTLE: Final = 200_000
"""Bytes that may cross home's device meanwhile: probes, and calls that send nothing."""
WAYS: Final = (("milan", "paris"), ("paris", "milan"))
SETTING: Final = {"rome": "always", "milan": "agree", "paris": "agree"}
LONG: Final = 300.0
"""Seconds in which home has asked again: it waits 30 s after a failure, and longer after the next ones."""
EAR: Final = (
    "table inet ear { counter seen { packets 0 bytes 0 }; "
    'chain on { type filter hook prerouting priority -300; iifname "liqod" counter name seen; }; }\n'
)
SERVE: Final = (
    f"dd if=/dev/urandom of=/tmp/made bs=1048576 count={SIZE} 2>/dev/null; mv /tmp/made /tmp/large; "
    f"exec busybox httpd -f -v -p {PORT} -h /tmp"
)


class DirectTests(LendersTests):
    """Rome borrows from milan and from paris, which are peers of each other too. The tests are steps."""

    daemon_class = HostDaemon
    shape: ClassVar[dict[str, Any]] = {"same_pod_cidr": True}
    sums: ClassVar[dict[str, str]] = {}
    """The checksum of the file that the pod at a lender serves."""

    @classmethod
    def settings(cls, name: str) -> str:
        """Return the setting of a cluster."""
        return f'\n[network]\nmode = "wireguard"\ndirect = "{SETTING[name]}"\n'

    def record(self, kind: str, here: str, there: str) -> dict[str, Any]:
        """Return what a cluster's record of a peer says."""
        cluster = self.daemons[here].cluster
        return dict(cluster.get(kind, peer_of(cluster, there)["metadata"]["name"]))

    def connected(self, here: str, there: str) -> bool:
        """Tell whether packets cross between two clusters."""
        return bool(self.record("tunnelendpoint", here, there)["status"].get("phase") == "Connected")

    def seen(self, here: str, there: str, address: str) -> str:
        """Return how a pod address of one cluster reads in another."""
        after = self.record("networkconfig", here, there)["spec"]["remap"]["podCIDRs"][0]
        return ".".join([*after.split(".")[:2], *address.split(".")[2:]])

    def space(self, lender: str) -> str:
        """Return what rome's namespace is called at a lender."""
        return remote_namespace(NAMESPACE, peer_of(self.daemons[lender].cluster, "rome")["metadata"]["name"])

    def there(self, lender: str) -> dict[str, Any]:
        """Return the pod at a lender, as the lender has it."""
        (found,) = live_pods(self.daemons[lender].cluster, f"at-{lender}").values()
        return found

    def runs(self, lender: str) -> bool:
        """Tell whether the pod at a lender runs."""
        return is_running(self.there(lender))

    def sum_of(self, lender: str) -> str:
        """Return the checksum of the file of the pod at a lender; CommandFailed while it is being made."""
        words = ("exec", "-n", self.space(lender), f"at-{lender}", "--", "sha256sum", "/tmp/large")
        return self.daemons[lender].cluster.kubectl(*words).split()[0]

    def logged(self, lender: str, caller: str) -> bool:
        """Tell whether the log of the pod at a lender names a caller."""
        words = ("logs", "-n", self.space(lender), f"at-{lender}")
        return caller in self.daemons[lender].cluster.kubectl(*words)

    def blames(self, lender: str) -> bool:
        """Tell whether the reason that rome's records give is a lender's."""
        return peer_of(self.rome, lender)["metadata"]["name"] in self.said(*LENDERS)[2]

    def said(self, lender: str, other: str) -> tuple[str, str, str]:
        """Return how rome says that a lender is connected with the other one: phase, reason and message."""
        peer = peer_of(self.rome, other)["metadata"]["name"]
        others = self.record("networkconfig", "rome", lender)["status"].get("others") or []
        (one,) = [each for each in others if each["peer"] == peer]
        return one["phase"], one["reason"], one["message"]

    def says(self, phase: str, reason: str) -> bool:
        """Tell whether the records of both lenders say so, and ``liqodctl status`` with them."""
        for one, two in WAYS:
            self.assertEqual(self.said(one, two)[:2], (phase, reason), one)
        shown = self.daemons["rome"].liqodctl("status", "-o", "json")
        for name in LENDERS:
            self.assertIn(f"direct to {name}" if phase == "Direct" else f"by home to {name} ({reason})", shown)
        return True

    def endpoint(self, lender: str, other: str) -> str:
        """Return the one address at which a lender calls rome's pod at the other one."""
        label = f"kubernetes.io/service-name=at-{other},endpointslice.kubernetes.io/managed-by={REFLECTED_SLICE}"
        slices = self.daemons[lender].cluster.get("endpointslices", "-n", self.space(lender), "-l", label)["items"]
        (address,) = [one for each in slices for end in each.get("endpoints") or () for one in end["addresses"]]
        return str(address)

    def leads(self, *, straight: bool) -> bool:
        """Tell whether both lenders have the other one's own address for the pod there, or both one of rome's."""
        for one, two in WAYS:
            own = self.seen(one, two, self.there(two)["status"]["podIP"])
            self.assertEqual(self.endpoint(one, two) == own, straight, f"{one} calls {self.endpoint(one, two)}")
        return True

    def passed_home(self) -> int:
        """Return the bytes that have come out of tunnels at rome."""
        said = self.rome.run(["nft", "list", "counter", "inet", "ear", "seen"])
        found = re.search(r"bytes (\d+)", said)
        assert found is not None, said
        return int(found[1])

    def transferred(self, lender: str, other: str) -> bool:
        """Have the pod at a lender fetch the file from the one at the other, by rome's service; tell if it is whole."""
        cluster, space = self.daemons[lender].cluster, self.space(lender)
        address = cluster.get("service", f"at-{other}", "-n", space)["spec"]["clusterIP"]
        script = FETCH_LARGE.format(address=address, port=PORT)
        said = cluster.kubectl("exec", "-n", space, f"at-{lender}", "--", "sh", "-c", script)
        self.assertEqual(said.split()[0], self.sums[other])
        return True

    def crosses(self, *, home: bool) -> None:
        """Have the file pass whole in both directions, by way of home or not."""
        for one, two in WAYS:
            eventually(f"{one} has the file of {two}", partial(self.transferred, one, two))
            before = self.passed_home()
            self.transferred(one, two)
            passed = self.passed_home() - before
            print(f"\n{passed} bytes passed rome of {SIZE} MB from {two} to {one}")
            if home:
                self.assertGreater(passed, SIZE << 20)
            else:
                self.assertLess(passed, LITTLE)

    def set_direct(self, name: str, value: str) -> None:
        """Change the setting of a cluster, which its next daemon reads."""
        daemon: Daemon = self.daemons[name]
        daemon.stop()
        text = daemon.config.read_text()
        daemon.config.write_text(re.sub(r'^direct = ".*"$', f'direct = "{value}"', text, flags=re.MULTILINE))
        daemon.start()

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Let no packet of a tunnel pass between milan and paris; their session stays, and so do other tunnels."""
        cluster, address = self.daemons["milan"].cluster, self.daemons["paris"].cluster.address
        lines = ["table ip cut {"]
        for name, word in (("input", "saddr"), ("output", "daddr")):
            rule = f"ip {word} {address} udp dport 5871 drop"
            lines += [f"chain {name} {{", f"type filter hook {name} priority 0", rule, "}"]
        cluster.run(["nft", "-f", "-"], input="\n".join([*lines, "}", ""]))
        try:
            yield
        finally:
            cluster.run(["nft", "delete table ip cut"])

    def test_01_three_tunnels(self) -> None:
        """Each of the three has a tunnel to each of the others: rome's first, so that the lenders know its view."""
        self.peer_up()
        for name in LENDERS:
            eventually(f"the tunnel from rome to {name}", partial(self.connected, "rome", name))
        trust_each_other(self.daemons["milan"], self.daemons["paris"])
        for one, two in WAYS:
            eventually(f"the tunnel from {one} to {two}", partial(self.connected, one, two))
        self.rome.run(["nft", "-f", "-"], input=EAR)

    def test_02_straight(self) -> None:
        """With pods at both the lenders are asked and agree: packets pass by their tunnel, and not through home.

        The caller is seen by the address by which the one lender knows the other's pod.
        """
        self.rome.apply(enabled_namespace())
        for name in LENDERS:
            label = {"app": f"at-{name}"}
            body = pod(f"at-{name}", ["sh", "-c", SERVE], namespace=NAMESPACE, labels=label)
            body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": f"liqo-{name}"}
            self.rome.apply(service(f"at-{name}", label, PORT, namespace=NAMESPACE), body)
        for name in LENDERS:
            eventually(f"the pod at {name}", partial(self.runs, name))
            self.sums[name] = eventually(f"the file at {name}", partial(self.sum_of, name))
        eventually("both agreed", partial(self.says, "Direct", "BothAgreed"), LONG)
        eventually("the slices lead straight", partial(self.leads, straight=True))
        self.crosses(home=False)
        for one, two in WAYS:
            caller = self.seen(two, one, self.there(one)["status"]["podIP"])
            eventually(f"{two} saw {caller}", partial(self.logged, two, caller))

    def test_03_one_says_no(self) -> None:
        """When one lender allows it no more, the records say so with its words, and packets pass through home."""
        self.set_direct("paris", "never")
        eventually("one says no", partial(self.says, "ByHome", "DirectOff"), LONG)
        eventually("by the words of paris", partial(self.blames, "paris"))
        eventually("the slices lead home", partial(self.leads, straight=False))
        self.crosses(home=True)

    def test_04_it_agrees_again(self) -> None:
        """When it allows it again, packets pass straight without anything else being done."""
        self.set_direct("paris", "agree")
        eventually("both agreed", partial(self.says, "Direct", "BothAgreed"), 2 * LONG)
        eventually("the slices lead straight", partial(self.leads, straight=True))
        self.crosses(home=False)

    def test_05_their_tunnel_is_cut(self) -> None:
        """While nothing passes between the lenders their pods talk through home, then straight: the same pods."""
        before = [self.there(name)["metadata"]["uid"] for name in LENDERS]
        with self.cut():
            eventually("the slices lead home", partial(self.leads, straight=False))
            eventually("the tunnel is the reason", partial(self.says, "ByHome", "TunnelDown"))
            self.crosses(home=True)
        for one, two in WAYS:
            eventually(f"the tunnel from {one} to {two}", partial(self.connected, one, two))
        eventually("both agreed", partial(self.says, "Direct", "BothAgreed"), 2 * LONG)
        eventually("the slices lead straight", partial(self.leads, straight=True))
        self.crosses(home=False)
        self.assertEqual([self.there(name)["metadata"]["uid"] for name in LENDERS], before)

    def test_06_home_says_no(self) -> None:
        """A home that asks its lenders no more has its pods' packets pass through it again."""
        self.set_direct("rome", "agree")
        eventually("home says no", partial(self.says, "ByHome", "DirectOff"), LONG)
        eventually("the slices lead home", partial(self.leads, straight=False))
        self.crosses(home=True)
