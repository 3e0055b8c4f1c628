"""The example in the sandbox's README runs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from liqod.demo.access import client_config
from liqod.kube.client import Client
from liqod.kube.connection import config
from liqod.kube.resources import NODES
from liqod.model.objects.meta import Object

README = Path(__file__).resolve().parents[2] / "sandbox" / "README.md"


class ReadmeTests(TestCase):
    """What a newcomer copies works."""

    timeout = 30

    async def test_example(self) -> None:
        """The example starts a cluster, whose kubeconfig leads to its node."""
        code = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[0]
        before = Path.cwd()
        directory = Path(self.mktemp())
        directory.mkdir()
        os.chdir(directory)
        self.addCleanup(os.chdir, before)
        scope: dict[str, Any] = {"print": lambda *_: None}
        exec(compile(code, str(README), "exec"), scope)
        cluster = scope["start"]()
        self.assertEqual(config.load("rome.kubeconfig", "").server, client_config(cluster).server)
        client = Client(client_config(cluster), scope["reactor"])
        try:
            self.assertIn("rome-1", [node.metadata.name for node in (await client.list(NODES, view=Object)).items])
        finally:
            await client.close()
            await cluster.stop()
