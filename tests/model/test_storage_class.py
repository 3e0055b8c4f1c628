"""Which storage class a claim that names none gets."""

from __future__ import annotations

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.objects.storage_class import StorageClass, default_class

GA, BETA = "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"


def made(name: str, created: str, **annotations: str) -> StorageClass:
    metadata = {"name": name, "creationTimestamp": created, "annotations": annotations}
    return msgspec.convert({"metadata": metadata}, StorageClass)


class DefaultClassTests(SynchronousTestCase):
    """The default class, as Kubernetes finds it."""

    def test_none(self) -> None:
        """Without a class that is annotated so there is no default one."""
        self.assertIsNone(default_class([]))
        self.assertIsNone(default_class([made("a", "2026-01-01T00:00:00Z", **{GA: "false"})]))

    def test_the_newest(self) -> None:
        """The newest annotated one is the default, by either annotation, and of one second the first name."""
        old = made("a", "2026-01-01T00:00:00Z", **{GA: "true"})
        new = [made(name, "2026-01-02T00:00:00Z", **{key: "true"}) for name, key in (("c", GA), ("b", BETA))]
        plain = made("d", "2026-01-03T00:00:00Z")
        self.assertIs(default_class([old, plain]), old)
        self.assertIs(default_class([old, *new, plain]), new[1])
