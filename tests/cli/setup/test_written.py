"""What ``install`` says of the objects that it wrote: a line for each kind, or for each object."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.setup.install import say_written
from liqod.cli.setup.written import Change, WrittenObject, brief
from liqod.kube import manifests
from liqod.kube.errors import Forbidden
from liqod.kube.resources import CRDS
from tests.cli.cluster_case import ClusterCase
from tests.real.terminal import ROWS

KIND = "ValidatingAdmissionPolicy"


class BriefTests(SynchronousTestCase):
    """The lines for many objects."""

    def test_a_line_for_each_kind(self) -> None:
        """Objects of a kind are counted where the first of them stands; a single one is named, a sentence stays."""
        changes: list[Change] = [
            WrittenObject(KIND, "one", True),
            "namespace liqo-system: created",
            WrittenObject(KIND, "two", True),
            WrittenObject("Role", "liqo-system/liqod", False),
            WrittenObject(KIND, "three", False),
            WrittenObject("RuntimeClass", "liqo", True),
            WrittenObject("Role", "default/liqod", False),
        ]
        self.assertEqual(
            brief(changes),
            [
                "ValidatingAdmissionPolicies: 2 installed, 1 changed",
                "namespace liqo-system: created",
                "Roles: 0 installed, 2 changed",
                "RuntimeClass liqo: installed",
            ],
        )
        self.assertEqual(brief([]), [])
        self.assertEqual(str(WrittenObject("Role", "default/liqod", False)), "Role default/liqod: changed")


class SaidTests(SynchronousTestCase):
    """What is said while objects are written, by `install` and by both forms of `up`."""

    def said(self, *, verbose: bool) -> list[str]:
        """Return what is said of two roles, and the error after them."""

        async def written() -> AsyncIterator[Change]:
            for name in ("one", "two"):
                yield WrittenObject("Role", name, True)
            raise Forbidden(403, "Forbidden", "roles is forbidden")

        lines: list[str] = []
        session: Any = SimpleNamespace(say=lines.append)
        done = Deferred.fromCoroutine(say_written(session, written(), verbose=verbose, indent="  "))
        self.failureResultOf(done, Forbidden)
        return lines

    def test_until_an_error(self) -> None:
        """What was written before an error is said, in one line or in two."""
        self.assertEqual(self.said(verbose=False), ["  Roles: 2 installed, 0 changed"])
        self.assertEqual(self.said(verbose=True), ["  Role one: installed", "  Role two: installed"])


class InstallTests(ClusterCase):
    """The command, against a cluster of the sandbox."""

    async def test_one_screen(self) -> None:
        """All of it fits on one screen; with -v, and for programs, every object is named."""
        out = await self.liqodctl("install")
        count = len(manifests.definitions())
        self.assertIn(f"CustomResourceDefinitions: {count} installed, 0 changed", out)
        self.assertLess(len(out.splitlines()), ROWS)
        name = manifests.definitions()[0]["metadata"]["name"]
        other = manifests.definitions()[1]["metadata"]["name"]
        for one in (name, other):
            await self.client.patch(CRDS, one, {"spec": {"names": {"shortNames": []}}})
        self.assertIn("CustomResourceDefinitions: 0 installed, 2 changed", await self.liqodctl("install"))
        await self.client.patch(CRDS, name, {"spec": {"names": {"shortNames": []}}})
        self.assertIn(f"CustomResourceDefinition {name}: changed", await self.liqodctl("install", "-v"))
        await self.client.patch(CRDS, name, {"spec": {"names": {"shortNames": []}}})
        changes = json.loads(await self.liqodctl("install", "-o", "json"))["changes"]
        self.assertEqual(changes, [f"CustomResourceDefinition {name}: changed"])
