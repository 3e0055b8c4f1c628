"""The end of a peering on two real clusters with pods running: with a peer that answers, a slow one, and a dead one."""

from __future__ import annotations

import os
import signal

from tests.real.endings import TOMBSTONE, EndingTests, peer_id
from tests.real.path import NAMESPACE


class UnpeerTests(EndingTests):
    """Without a network; both API servers are as before."""

    def test_01_a_peer_that_answers(self) -> None:
        """Both sides drain and forget: both API servers are as before, and the command shows what it removed."""
        self.peer()
        receipt = self.rome.liqodctl("unpeer", "milan", "--yes", timeout=200)
        self.assertIn("liqo-milan", receipt)
        self.assertNotIn(" left", receipt)
        self.assertIn("milan has ended it, too", receipt)
        pods = self.rome.cluster.get("pods", "-n", NAMESPACE)["items"]
        self.assertEqual({pod["spec"].get("nodeName") for pod in pods}, {None}, "its pods wait at home")
        self.tidy()
        self.as_before(self.rome, self.before[0])
        self.as_before(self.milan, self.before[1])

    def test_02_a_peer_that_hangs(self) -> None:
        """A stopped daemon is not waited for beyond the deadline; it learns of it when it goes on."""
        self.peer()
        os.kill(self.milan.pid, signal.SIGSTOP)
        try:
            receipt = self.rome.liqodctl("unpeer", "milan", "--yes", "--timeout=5", timeout=200)
        finally:
            os.kill(self.milan.pid, signal.SIGCONT)
        self.assertIn("notified when it reconnects", receipt)
        self.tidy()
        self.as_before(self.rome, self.before[0], (TOMBSTONE,))
        self.as_before(self.milan, self.before[1])

    def test_03_a_peer_that_is_dead(self) -> None:
        """Its API server is gone with it: rome is clean all the same, and milan too, once it lives again."""
        self.forget()
        self.peer()
        self.milan.kill()
        self.milan.cluster.lose_control_plane()
        try:
            receipt = self.rome.liqodctl("unpeer", "milan", "--dead", "--yes", timeout=200)
        finally:
            self.milan.cluster.restore_control_plane(kubelet=True)
        self.assertNotIn(" left", receipt)
        self.tidy()
        peer = f"ForeignCluster /{peer_id(self.before[0])}"
        alone = {name: body for name, body in self.before[0].items() if name != peer}
        self.as_before(self.rome, alone, (TOMBSTONE, peer))
        self.milan.start()
        self.as_before(self.milan, self.before[1])
