"""What is said of pairing tokens when a peer is sent away."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from liqod.kube.resources import SECRETS
from liqod.model.records.invitations import EXPIRES, SPENT, TOKEN_LABEL, USED_BY, token_name
from liqod.model.timestamps import rfc3339
from liqod.peering.trust.pairing import encoded
from tests.cli import test_every_command


class OpenTokenTests(test_every_command.EveryCase):
    """Tokens do not say for whom they are."""

    async def issue(self, name: str, more: Mapping[str, str] | None = None, *, hours: int = 1) -> None:
        data = {EXPIRES: rfc3339(datetime.now(UTC) + timedelta(hours=hours)), **(more or {})}
        metadata = {"name": token_name(name), "labels": {TOKEN_LABEL: "true"}}
        await self.client.create(SECRETS, {"metadata": metadata, "data": encoded(data)}, "liqo-system")

    async def test_how_many_are_open(self) -> None:
        """``distrust`` and ``unpeer`` count those that can still be used, and say how to revoke them."""
        for command in ("distrust", "unpeer"):
            out, _, _ = await self.outcome(command, "milan", "--yes", "--dry-run")
            self.assertNotIn("pairing token", out)
        await self.issue("0a")
        await self.issue("0b")
        await self.issue("0c", {USED_BY: "sha256:00", SPENT: "true"})
        await self.issue("0d", hours=-1)
        for command in ("distrust", "unpeer"):
            out, err, _ = await self.outcome(command, "milan", "--yes")
            said = " ".join(out.split())
            self.assertIn("2 pairing tokens of this cluster can still be used", said, err)
            self.assertIn("liqodctl token revoke TOKEN", said)
