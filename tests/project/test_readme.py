"""What is typed of the README and two other pages on booted machines is there, in the form in which it is sought."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.real.readme import BORROW, INSTALL, OPERATIONS, SPLIT, by_cluster, lines_of, undoing, upgrading


class ReadmeTests(SynchronousTestCase):
    """Lines of the README."""

    def test_install(self) -> None:
        """Each cluster's host gets the package, a kubeconfig and one command, and the second the first one's token."""
        lines = by_cluster(lines_of(INSTALL))
        self.assertEqual(list(lines), ["milan", "rome"])
        for install, kubeconfig, _ in lines.values():
            self.assertEqual(install, "apt install ./liqod_*.deb")
            self.assertEqual(kubeconfig, "export KUBECONFIG=/etc/kubernetes/admin.conf")
        self.assertEqual(lines["milan"][-1], "liqodctl up --invite")
        self.assertEqual(lines["rome"][-1], "liqodctl up --join TOKEN")

    def test_borrow(self) -> None:
        """A namespace is made and offloaded, after a look at what there is."""
        lines = lines_of(BORROW)
        self.assertEqual(lines[:2], ["liqodctl status", "kubectl get nodes"])
        offloading = [line for line in lines if "namespace shop" in line]
        self.assertEqual(offloading, ["kubectl create namespace shop", "liqodctl offload namespace shop"])
        self.assertIn("kubectl -n shop create deployment web --image=nginx --replicas=3", lines)

    def test_upgrade(self) -> None:
        """The guide has the package's way there and back."""
        there, back = upgrading("Debian package")
        self.assertEqual(there, ["apt install ./liqod_NEW.deb", "liqodctl install"])
        self.assertEqual(back, ["apt install --allow-downgrades ./liqod_OLD.deb", "liqodctl install"])
        self.assertRaises(LookupError, upgrading, "floppy disk")

    def test_split(self) -> None:
        """From one process to three, with the package: the old one ends, each gets its kubeconfig, all are started."""
        lines = lines_of(SPLIT, OPERATIONS)
        self.assertEqual(lines[1:3], ["systemctl disable --now liqod", "systemctl stop liqod-tunnel@liqod"])
        roles = [line.partition(" ")[0].rpartition("=")[2] for line in lines[3:-1]]
        self.assertEqual(roles, ["control", "network", "names"])
        self.assertEqual(lines[-1], "systemctl enable --now liqod-control liqod-network liqod-names")

    def test_undo(self) -> None:
        """What was done is undone by one command each."""
        self.assertEqual(undoing("unoffload"), "liqodctl unoffload namespace shop")
        self.assertEqual(undoing("unpeer"), "liqodctl unpeer milan")
        self.assertEqual(undoing("down"), "liqodctl down")
        self.assertRaises(LookupError, undoing, "up")

    def test_clusters(self) -> None:
        """Lines before the first comment are nobody's own, and a cluster may have several parts."""
        lines = ["one", "# rome, then", "two", "# milan", "three", "# rome", "four"]
        self.assertEqual(by_cluster(lines), {"": ["one"], "rome": ["two", "four"], "milan": ["three"]})
