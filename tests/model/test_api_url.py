"""Which URLs of a lender's API server are used."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.model.api_url import OwnAddresses, api_url_problem


class ApiUrlTests(SynchronousTestCase):
    """URLs as a hostile lender may send them."""

    def test_ordinary_ones(self) -> None:
        """Hosts, addresses and ports pass, and the path of an API server behind a proxy."""
        for url in (
            "https://203.0.113.7:6443",
            "https://[2001:db8::7]:6443/",
            "https://api.milan.example",
            "https://proxy.example/k8s/clusters/c-m-abc",
            "https://127.0.0.1:6443",
        ):
            self.assertEqual(api_url_problem(url), "", url)

    def test_what_is_no_api_server(self) -> None:
        """Neighbours of the host, and URLs that would make another request of ours, are refused."""
        for url in (
            "http://203.0.113.7:6443",
            "https://",
            "https://169.254.169.254",
            "https://[fe80::1]:6443",
            "https://[::ffff:169.254.169.254]",
            "https://0.0.0.0:6443",
            "https://[::]:6443",
            "https://239.0.0.1",
            "https://user:secret@203.0.113.7",
            "https://203.0.113.7/admin?x=",
            "https://203.0.113.7/admin#",
            "https://203.0.113.7/a/../b",
            "https://203.0.113.7/a%2fb",
            "https://203.0.113.7:99999",
            "https://[::1",
            "h\rttps://203.0.113.7",
            "https://203.0.113.7\0",
            "https://203.0.113.7/a b",
            "https://h\xf6st.example",
        ):
            self.assertNotEqual(api_url_problem(url), "", url)

    def test_this_cluster_is_no_other(self) -> None:
        """Its own API server, networks, host and names are refused, however they are written."""
        own = OwnAddresses("https://10.0.0.1:6443", ("10.96.0.0/12", "fd00:96::/112"))
        for url in (
            "https://10.0.0.1:6443",
            "https://10.0.0.1:6443/k8s",
            "https://[::ffff:10.0.0.1]:6443",
            "https://167772161:6443",
            "https://10.96.0.1",
            "https://[fd00:96::1]:6443",
            "https://127.0.0.1:2379",
            "https://[::1]:2379",
            "https://127.1:2379",
            "https://0x7f000001:10250",
            "https://[::ffff:127.0.0.1]:2379",
            "https://localhost:2379",
            "https://kubernetes",
            "https://vault.vault.svc",
            "https://vault.vault.svc.cluster.local:8200",
            "https://vault.vault.svc.cluster.local.:8200",
        ):
            self.assertTrue(api_url_problem(url) or own.problem(url), url)
        for url in (
            "https://10.0.0.1:16443",
            "https://10.0.0.2:6443",
            "https://api.milan.example",
            "https://[fd00::1]",
        ):
            self.assertEqual(api_url_problem(url) or own.problem(url), "", url)

    def test_two_clusters_on_one_machine(self) -> None:
        """Where this cluster's API server is on loopback, that of another may be, at another port."""
        own = OwnAddresses("https://127.0.0.1:6443")
        self.assertEqual(own.problem("https://127.0.0.1:6444"), "")
        for url in ("https://127.0.0.1:6443", "https://127.1:6443"):
            self.assertTrue(own.problem(url), url)

    def test_addresses_in_other_writings(self) -> None:
        """What a resolver takes for a link-local address is one."""
        for url in ("https://2852039166", "https://0xa9fea9fe", "https://169.254.43518"):
            self.assertTrue(api_url_problem(url), url)
