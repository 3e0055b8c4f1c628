"""Which URLs of a lender's API server are used."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.model.records.api_url import api_url_problem


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
        ):
            self.assertNotEqual(api_url_problem(url), "", url)
