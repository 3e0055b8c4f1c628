"""What counts as an address and as a URL in the settings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.checks import is_https, split_address


class AddressTests(SynchronousTestCase):
    """``host:port``, ``[IPv6]:port`` and ``https://...``."""

    def test_addresses(self) -> None:
        """A name or IPv4 address stands alone, an IPv6 address in a pair of brackets, and each has a port."""
        for text, expected in (
            ("10.0.0.1:80", ("10.0.0.1", 80)),
            ("rome.example.com:65535", ("rome.example.com", 65535)),
            ("[2001:db8::1]:443", ("2001:db8::1", 443)),
            ("2001:db8::1:443", None),
            ("[2001:db8::1:443", None),
            ("[2001:db8::12]3:443", None),
            ("2001:db8::1]:443", None),
            ("[10.0.0.1]:443", None),
            ("10.0.0.1", None),
            ("10.0.0.1:0", None),
            ("10.0.0.1:65536", None),
            ("10.0.0.1:8\u0660", None),
            (":80", None),
        ):
            self.assertEqual(split_address(text), expected, text)

    @given(st.ip_addresses(), st.integers(1, 65535))
    def test_every_ip_address(self, address: object, port: int) -> None:
        """Whatever IP address and port are written together come out again."""
        host = str(address)
        text = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.assertEqual(split_address(text), (host, port))

    def test_urls(self) -> None:
        """An API server has https, a host, and no port or one from 1."""
        for text, expected in (
            ("https://10.0.0.1", True),
            ("https://10.0.0.1:1", True),
            ("https://[2001:db8::1]:6443/path", True),
            ("https://10.0.0.1:0", False),
            ("https://10.0.0.1:65536", False),
            ("https://", False),
            ("https://:6443", False),
            ("http://10.0.0.1", False),
            ("10.0.0.1:6443", False),
        ):
            self.assertEqual(is_https(text), expected, text)
