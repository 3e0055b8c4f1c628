"""What counts as a URL in the settings."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.config.checks import is_https


class URLTests(SynchronousTestCase):
    """``https://...``."""

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
