"""The page in a real browser: ``make nightly ARGS=browser``.

With ``LIQOD_SCREENSHOTS=1`` it makes the screenshots of docs/web.md; each run would change the sources otherwise. Not a
part of ``make test``: Chromium and its driver are a download of 130 MB.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.internet.defer import maybeDeferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.options import Options
from liqod.cli.console.session import Session
from liqod.cli.web.command import serve
from liqod.config.schema import ClusterSettings, Settings
from liqod.kube.resources import FOREIGNCLUSTERS
from tests.cli.cluster_case import REACTOR
from tests.cli.test_every_command import EveryCase
from tests.cli.web.webdriver import Browser, lacking
from tests.environment import require
from tests.runner.steps import CHECKOUT

IMAGES = CHECKOUT / "docs" / "images"
MAIN = "document.getElementById('live').innerText"
TAB, ENTER = "\ue004", "\ue007"
IMAGE = '"><img src=x onerror="document.title=1">'
NAME = f"{IMAGE}\x1b[31m"
MESSAGE = f"</text></svg><script>document.title=1</script>{NAME}"


class DemoTests(SynchronousTestCase):
    """The page of the demonstration, from its beginning to its end."""

    def setUp(self) -> None:
        """Run the demonstration with its pages, and a browser."""
        require(lacking())
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TMPDIR": tempfile.gettempdir()}
        self.demo = subprocess.Popen(
            [sys.executable, "-m", "liqod.cli", "demo", "--web"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            env=environment,
        )
        self.addCleanup(self.end)
        assert self.demo.stdout is not None
        self.pages: dict[str, str] = {}
        self.kubeconfigs: list[str] = []
        for line in self.demo.stdout:
            if "http://127.0.0.1:" in line:
                name, url = line.split()
                self.pages[name] = url
            if "export KUBECONFIG=" in line:
                self.kubeconfigs.append(line.split("=", 1)[1].split()[0])
            if "log:" in line:
                break
        self.browser = Browser(Path(self.mktemp()).absolute())
        self.addCleanup(self.browser.close)

    def end(self) -> None:
        """End the demonstration."""
        self.demo.send_signal(signal.SIGINT)
        self.demo.communicate(timeout=60)

    def liqodctl(self, *words: str) -> None:
        """Run a command on rome."""
        argv = [sys.executable, "-m", "liqod.cli", *words, "--kubeconfig", self.kubeconfigs[0]]
        subprocess.run(argv, cwd=CHECKOUT, check=True, capture_output=True, timeout=60)

    def test_page(self) -> None:
        """The page shows the clusters, changes by itself, loads nothing from elsewhere, and all can use it."""
        browser = self.browser
        browser.open(self.pages["rome"])
        browser.until(f"return {MAIN}.includes('in order')")
        self.picture("web-clusters")
        self.look_by_keyboard()
        self.look_live()
        self.look_at_peer()
        self.look_on_phone()
        loaded = browser.run("return performance.getEntries().map(e => e.name).filter(n => n.includes('://'))")
        self.assertTrue(loaded)
        self.assertEqual([name for name in loaded if not name.startswith(self.pages["rome"])], [])
        self.assertEqual(browser.complaints(), [])

    def picture(self, name: str) -> None:
        """Take a screenshot, for the documents where it is asked for."""
        folder = IMAGES if os.environ.get("LIQOD_SCREENSHOTS") else Path(self.mktemp())
        folder.mkdir(exist_ok=True)
        self.browser.screenshot(folder / f"{name}.png")

    def look_by_keyboard(self) -> None:
        """With the tabulator alone one comes to the peer, always seeing where one is."""
        browser = self.browser
        browser.press(TAB)
        self.assertEqual(browser.run("return document.activeElement.className"), "skip")
        for _ in range(3):
            browser.press(TAB)
            if str(browser.run("return document.activeElement.id")).startswith("map-"):
                break
        self.assertIn("milan: Ready, in order", browser.run("return document.activeElement.getAttribute('aria-label')"))
        tree = browser.devtools("Accessibility.getFullAXTree")["nodes"]
        roles = {node["role"]["value"] for node in tree if not node["ignored"]}
        self.assertLessEqual({"banner", "main", "contentinfo", "heading", "table", "columnheader", "status"}, roles)
        links = [node["name"]["value"] for node in tree if not node["ignored"] and node["role"]["value"] == "link"]
        self.assertTrue(links)
        self.assertTrue(all(links), links)

    def look_live(self) -> None:
        """A change arrives without loading the page again, is announced, and leaves the focus where it was."""
        browser = self.browser
        browser.run("window.sameDocument = true")
        focused = browser.run("return document.activeElement.id")
        self.liqodctl("cordon", "milan")
        browser.until(f"return {MAIN}.includes('cordoned')")
        self.assertEqual(browser.run("return [window.sameDocument, document.activeElement.id]"), [True, focused])
        self.assertIn("not in use", browser.run("return document.getElementById('announcement').textContent"))
        self.liqodctl("uncordon", "milan")
        browser.until(f"return !{MAIN}.includes('cordoned')")

    def look_at_peer(self) -> None:
        """Enter opens the peer's page, which is dark where the system is."""
        browser = self.browser
        dark = [{"name": "prefers-color-scheme", "value": "dark"}]
        browser.devtools("Emulation.setEmulatedMedia", features=dark)
        browser.press(ENTER)
        browser.until(
            "return document.querySelector('h1').textContent === 'milan' && !!document.getElementById('pods')"
        )
        shown = browser.run(f"return {MAIN}")
        for text in ("Running", "Timeline", "the virtual node is ready", "borrowed from it"):
            self.assertIn(text, shown)
        paper = browser.run("return getComputedStyle(document.documentElement).backgroundColor")
        self.assertLess(max(int(part) for part in paper.strip("rgb()").split(",")), 64, paper)
        self.picture("web-peer")

    def look_on_phone(self) -> None:
        """At 320 pixels nothing but the map is wider than the screen, on either page."""
        browser = self.browser
        browser.devtools("Emulation.setDeviceMetricsOverride", width=320, height=640, deviceScaleFactor=1, mobile=True)
        for place in ("location.href", "'../'"):
            browser.run(f"location.href = {place}")
            browser.until("return !!document.getElementById('next') && document.readyState === 'complete'")
            self.assertLessEqual(browser.run("return document.documentElement.scrollWidth"), 320, place)


class HostileTests(EveryCase):
    """A peer whose name and message are escapes and markup."""

    async def test_text_stays_text(self) -> None:
        """The browser shows them as text, and runs nothing of them, at first and after a change."""
        require(lacking())
        await self.client.patch(
            FOREIGNCLUSTERS, "c2", {"status": {"clusterName": NAME, "message": MESSAGE}}, subresource="status"
        )
        settings = Settings(cluster=ClusterSettings(name="rome"))
        listening, url = serve(Session(Options(), reactor=REACTOR, client=self.client, settings=settings))
        try:
            browser: Browser = await deferToThread(Browser, Path(self.mktemp()).absolute())
            try:
                for page in (url, f"{url}peer/c2"):
                    await deferToThread(browser.open, page)
                    await deferToThread(self.look, browser, "SessionBroken")
                status = {"status": {"reason": "Changed"}}
                await self.client.patch(FOREIGNCLUSTERS, "c2", status, subresource="status")
                await deferToThread(self.look, browser, "Changed")
            finally:
                await deferToThread(browser.close)
        finally:
            await maybeDeferred(listening.stopListening)

    def look(self, browser: Browser, reason: str) -> None:
        browser.until(f"return {MAIN}.includes('{reason}')")
        shown = browser.run(f"return {MAIN}")
        self.assertIn(IMAGE, shown)
        self.assertNotIn("\x1b", shown)
        self.assertEqual(browser.run("return document.querySelectorAll('main script, main img').length"), 0)
        self.assertTrue(browser.run("return document.title").endswith("liqod"))
        self.assertEqual(browser.complaints(), [])
