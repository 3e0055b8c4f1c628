"""A real browser, headless, by its driver's HTTP protocol (W3C WebDriver, and Chromium's DevTools through it)."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.testbed import system

PACKAGES: system.Packages = {
    "chromium": "chromium",
    "chromium-driver": "chromedriver",
    "fonts-dejavu-core": ("/usr/share/fonts/truetype/dejavu",),
}
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key of an element's reference (W3C WebDriver, section "Elements")."""
PATIENCE = 60.0


def lacking() -> str:
    """Return why there is no browser on this machine, after an attempt to install one; empty where there is one."""
    try:
        system.install(PACKAGES)
    except system.Missing as error:
        return str(error)
    return ""


class Browser:
    """One window with a profile of its own in ``folder``; every name but 127.0.0.1 is unknown to it."""

    def __init__(self, folder: Path) -> None:
        self._driver = subprocess.Popen(
            [str(shutil.which("chromedriver")), "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._driver.stdout is not None
        port = next(found[1] for line in self._driver.stdout if (found := re.search(r"on port (\d+)\.", line)))
        self._base = f"http://127.0.0.1:{port}/session"
        words = [
            "--headless=new",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1100,900",
            f"--user-data-dir={folder}",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        chrome = {"goog:chromeOptions": {"args": words}, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._call("", {"capabilities": {"alwaysMatch": chrome}})
        self._base += f"/{made['sessionId']}"

    def close(self) -> None:
        """End the browser and its driver."""
        try:
            self._call("", method="DELETE")
        finally:
            self._driver.terminate()
            self._driver.wait(30)
            assert self._driver.stdout is not None
            self._driver.stdout.close()

    def open(self, url: str) -> None:
        """Load a page."""
        self._call("/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what a script returns in the page."""
        return self._call("/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, script: str) -> None:
        """Wait until a script returns true."""
        self._until(lambda: self.run(script), script)

    def press(self, key: str) -> None:
        """Press a key, as somebody with a keyboard does."""
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._call("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """Send a command of Chromium's DevTools protocol."""
        return self._call("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def complaints(self) -> list[str]:
        """Return what the browser's console shows: what the page's policy forbade, what failed."""
        return [str(entry["message"]) for entry in self._call("/se/log", {"type": "browser"})]

    def screenshot(self, file: Path) -> None:
        """Write what the window shows as PNG."""
        file.write_bytes(base64.b64decode(self._call("/screenshot", method="GET")))

    def _until(self, holds: Callable[[], Any], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > end:
                raise AssertionError(f"did not become true: {what}\n{self.run('return document.body.innerText')}")
            time.sleep(0.1)

    def _call(self, path: str, body: Any = None, method: str = "") -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, method=method or ("POST" if data else "GET"))
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)["value"]
