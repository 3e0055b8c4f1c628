"""Where ``liqodctl`` has this cluster's own key from."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.status import whoami
from liqod.identity.certs import generate
from liqod.identity.fingerprint_words import words
from liqod.identity.pairing import read_token
from liqod.identity.store import to_secret
from liqod.kube.resources import SECRETS
from liqod.model.ids import ClusterID
from liqod.model.records.rotation import IDENTITY_SECRET, ORDER, PROGRESS
from tests.cli.cluster_case import REACTOR, ClusterCase


class FileTests(SynchronousTestCase):
    """A file that the settings name."""

    def test_a_file_at_home(self) -> None:
        """It may be named from the home directory, as for the daemon."""
        home = Path(self.mktemp())
        home.mkdir()
        (home / "tls.crt").write_bytes(b"PEM")
        self.patch(os, "environ", {**os.environ, "HOME": str(home)})
        self.assertEqual(whoami._content("~/tls.crt"), b"PEM")


class KeyTests(ClusterCase):
    """Against a cluster of the sandbox."""

    async def test_key_in_files(self) -> None:
        """Where the settings name files the key is the one in the certificate there; the Secret is never asked for."""
        await self.liqodctl("install")
        key, other = (generate(ClusterID("rome-id"), datetime.now(UTC)) for _ in range(2))
        certificate = self.kubeconfig.with_name("tls.crt")
        config = self.kubeconfig.with_name("liqod.toml")
        config.write_text(
            f'[cluster]\nid = "rome-id"\n[identity]\ncertificate = "{certificate}"\nkey = "/nonexistent/tls.key"\n'
        )
        for secret in (None, to_secret(other)):
            if secret is not None:
                metadata = {"name": "liqod-identity", "namespace": "liqo-system"}
                await self.client.create(SECRETS, {"metadata": metadata, "data": secret})
            certificate.write_bytes(key.certificate_pem)
            self.assertIn(words(key.fingerprint), await self.liqodctl("discover", "--config", str(config)))
            created = await self.liqodctl(
                "token", "create", "--address=192.0.2.1", "-o", "json", "--config", str(config)
            )
            self.assertEqual(read_token(json.loads(created)[0]["token"]).fingerprint, key.fingerprint)
            certificate.unlink()
            shown = await self.liqodctl("discover", "--config", str(config))
            self.assertRegex(shown.replace("\n  ", " "), r"rome-id +words: - \(the certificate .*: no such file")
            refused = await self.liqodctl("token", "create", "--config", str(config), status=1)
            self.assertRegex(refused, r"LQ2008(.|\n)*no such file")

    async def test_a_rotation_that_ends_without_a_new_key(self) -> None:
        """Where somebody else cancels it, or the daemon has its key in files, the command fails and says why."""
        await self.liqodctl("install")
        key = generate(ClusterID("rome-id"), datetime.now(UTC))
        metadata = {"name": IDENTITY_SECRET, "namespace": "liqo-system"}
        await self.client.create(SECRETS, {"metadata": metadata, "data": to_secret(key)})
        command = Deferred.fromCoroutine(self.liqodctl("rotate-key", "--timeout=30", "-o", "json", status=1))
        annotations: dict[str, str] = {}
        while ORDER not in annotations:
            await deferLater(REACTOR, 0.02)
            secret: dict[str, Any] = await self.client.get(SECRETS, IDENTITY_SECRET, "liqo-system")
            annotations = secret["metadata"].get("annotations") or {}
        ended = {"metadata": {"annotations": {ORDER: None, PROGRESS: "taken back: the key stays"}}}
        await self.client.patch(SECRETS, IDENTITY_SECRET, ended, "liqo-system", view=None)
        self.assertRegex(await command, r"LQ1007(.|\n)*not replaced: taken back: the key stays")
