"""The page of ``liqodctl web`` in a real browser, of real clusters, in four states: ``make nightly ARGS=browser``.

Rome and milan borrow from each other, and turin joins with a token. The faults are those of the broken set-ups, and
what has to be on the page is what is expected of ``liqodctl status`` there. With ``LIQOD_SCREENSHOTS=1`` it makes the
screenshots of docs/web.md.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.cli.web.browser import IMAGES
from tests.cli.web.webdriver import Browser, lacking
from tests.environment import require
from tests.real.base import made_once, require_clusters
from tests.real.borrowing import CONFIGURATION, MILAN, ROME, Borrowing, NamedDaemon, prepare
from tests.real.broken_setups import faults, setups
from tests.real.broken_setups.setups import Fault
from tests.real.daemons import Daemon
from tests.real.path import eventually, node_ready

TURIN: Final = "turin"
STEPS: Final = "return [...document.querySelectorAll('#next li')].map(one => one.innerText)"
ROWS: Final = "return [...document.querySelectorAll('#peers tbody tr')].map(one => one.innerText)"
NEXT: Final = "return document.getElementById('next').innerText"
WITHIN: Final = 240.0
"""Seconds until a fault is on the page: a closed port is noticed after missed pings."""


class PageTests(SynchronousTestCase):
    """The first page in the order of the steps' names; each but the first is rome's."""

    _sides: ClassVar[Borrowing | None] = None
    _browser: ClassVar[Browser | None] = None
    turin: ClassVar[NamedDaemon]

    def setUp(self) -> None:
        require(lacking())
        require_clusters()
        made_once(PageTests, self._make)
        assert self._sides is not None
        assert self._browser is not None
        self.sides, self.browser = self._sides, self._browser

    def _make(self) -> None:
        cls = PageTests
        prepare()
        sides = cls._sides = Borrowing(clusters=3)
        atexit.register(sides.close)
        sides.open()
        # What is opened below is at addresses of the test network.
        sides.testbed.enter()
        cls.turin = NamedDaemon(sides.testbed[3], TURIN, extra=CONFIGURATION)
        text = cls.turin.config.read_text()
        self.assertIn('interfaces = ["eth0"]', text)
        cls.turin.config.write_text(text.replace('interfaces = ["eth0"]', "mdns = false"))
        cls.turin.start()
        cls._browser = Browser(Path(self.mktemp()).absolute())
        atexit.register(cls._browser.close)

    @contextmanager
    def page_of(self, daemon: Daemon) -> Iterator[None]:
        """Have the first page of a cluster in the browser."""
        program = str(Path(sys.executable).with_name("liqodctl"))
        words = [program, "web", f"--kubeconfig={daemon.cluster.kubeconfig}", f"--config={daemon.config}"]
        serving = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert serving.stdout is not None
            url = next(line.strip() for line in serving.stdout if line.startswith("http://"))
            self.browser.open(url)
            yield
            self.assertEqual(self.browser.complaints(), [])
        finally:
            # A page whose server has ended would go on to ask it, and complain, while the next one is opened.
            self.browser.open("about:blank")
            serving.terminate()
            serving.communicate(timeout=30)

    def until(self, what: str, done: Callable[[], Any]) -> None:
        """Wait for something on the page, and show the page if it does not come."""
        try:
            eventually(what, done, WITHIN, 1.0)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.browser.run('return document.body.innerText')}") from error

    def picture(self, name: str) -> None:
        """Take a screenshot, for the documents where it is asked for."""
        folder = IMAGES if os.environ.get("LIQOD_SCREENSHOTS") else Path(self.mktemp())
        folder.mkdir(exist_ok=True)
        self.browser.screenshot(folder / f"{name}.png")

    def row(self, name: str) -> str:
        """Return the row of a peer in the table; LookupError while there is none."""
        for text in self.browser.run(ROWS):
            if text.startswith(name):
                return str(text)
        raise LookupError(f"{name} is not in the table")

    def shows(self, name: str, text: str) -> bool:
        """Tell whether a text is in the row of a peer."""
        return text in self.row(name)

    def named(self, cause: str, object: str) -> bool:
        """Have one of the steps on the page name a cause and an object, and everything that ``status`` is sure of."""
        steps = [str(one) for one in self.browser.run(STEPS)]
        found = [one for one in steps if re.search(cause, one, re.IGNORECASE) and re.search(object, one, re.IGNORECASE)]
        assert found, steps
        rome = self.sides[ROME]
        problems = json.loads(rome.liqodctl("status", "-o", "json", f"--config={rome.config}"))["problems"]
        said = "\n".join(str(one) for one in self.browser.run(STEPS))
        missing = [one["code"] for one in problems if one["severity"] == "error" and one["code"] not in said]
        assert not missing, f"status has {missing}, the page: {said}"
        return True

    def test_1_empty(self) -> None:
        """A cluster that knows no other one: nothing is wrong, and the page says what finds another one."""
        with self.page_of(self.turin):
            self.until("turin leads", lambda: "c3-one" in self.browser.run("return document.body.innerText"))
            shown = self.browser.run("return document.getElementById('live').innerText")
            self.assertIn("No peers yet", shown)
            self.assertEqual(self.browser.run(ROWS), [])
            self.until(
                "nothing is wrong", lambda: "Nothing is wrong" in self.browser.run("return document.body.innerText")
            )
            self.picture("web-empty")

    def test_2_healthy(self) -> None:
        """Two peers in order, and nothing to be done about either."""
        token = self.sides[ROME].liqodctl("token", "create").split()[-1]
        self.turin.liqodctl("peer", token, f"--config={self.turin.config}")
        eventually("turin has a virtual node", partial(node_ready, self.turin.cluster), WITHIN)
        with self.page_of(self.sides[ROME]):
            for name in (MILAN, TURIN):
                self.until(f"{name} is in order", partial(self.shows, name, "in order"))
                self.until(f"there is a tunnel to {name}", partial(self.shows, name, "round trip"))
            self.until("nothing is wrong", lambda: "Nothing is wrong" in self.browser.run(NEXT))
            self.picture("web-healthy")

    def test_3_a_peer_is_down(self) -> None:
        """Milan's daemon was killed: it is broken, with the reason, and turin is as it was."""
        self._broken(Fault("killed", MILAN), setups.NO_ANSWER, "web-peer-down")

    def test_4_the_network_is_broken(self) -> None:
        """No packet passes milan's port for tunnels: that is the reason on the page, and turin is as it was."""
        self._broken(Fault("port", MILAN, ("udp", "5871")), setups.NO_HANDSHAKE, "web-network-broken")

    def _broken(self, fault: Fault, cause: str, name: str) -> None:
        eventually("all is well", self.sides.is_well, WITHIN, 2.0)
        with self.page_of(self.sides[ROME]):
            with faults.made(self.sides, fault):
                self.until(f"{cause} of milan is on the page", lambda: self.named(cause, rf"\b{MILAN}\b"))
                self.assertNotIn("in order", self.row(MILAN))
                self.assertIn("in order", self.row(TURIN))
                self.picture(name)
            self.until("milan is in order again", partial(self.shows, MILAN, "in order"))
