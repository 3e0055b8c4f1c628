"""Where the key is kept."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from liqod.identity import certs, store
from liqod.identity.certs import IdentityError
from liqod.model.ids import ClusterID
from tests.identity.tls_pair import NOW

ALPHA = ClusterID("alpha")


class FileStoreTests(SynchronousTestCase):
    """A directory on disk."""

    def setUp(self) -> None:
        self.path = Path(self.mktemp()) / "deep" / "liqod"

    def refused(self) -> str:
        with self.assertRaises(IdentityError) as caught:
            store.load_or_create(self.path, ALPHA, NOW)
        return str(caught.exception)

    def test_key_is_made_once(self) -> None:
        """The first call makes the pair, later calls return it, files and directory are private."""
        first = store.load_or_create(self.path, ALPHA, NOW)
        second = store.load_or_create(str(self.path), ALPHA, NOW)
        self.assertEqual(first, second)
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o700)
        self.assertEqual(sorted(p.name for p in self.path.iterdir()), ["tls.crt", "tls.key"])
        for file in self.path.iterdir():
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)

    def test_umask_does_not_open_the_files(self) -> None:
        """Even with an umask of 0 nobody else can read the key."""
        old = os.umask(0)
        try:
            store.load_or_create(self.path, ALPHA, NOW)
        finally:
            os.umask(old)
        self.assertEqual(stat.S_IMODE((self.path / "tls.key").stat().st_mode), 0o600)

    def test_readable_key_is_refused(self) -> None:
        """A key that group or others can read is not used; the sentence says what to do."""
        store.load_or_create(self.path, ALPHA, NOW)
        for mode in (0o640, 0o604, 0o620):
            (self.path / "tls.key").chmod(mode)
            self.assertRegex(self.refused(), rf"others may read the private key .*{mode:04o}.*chmod 600")

    def test_writable_directory_is_refused(self) -> None:
        """A directory in which others can replace the key is not used."""
        store.load_or_create(self.path, ALPHA, NOW)
        self.path.chmod(0o770)
        self.assertIn("chmod 700", self.refused())

    def test_key_without_certificate_keeps_its_identity(self) -> None:
        """After a crash between the two files the key gets a new certificate."""
        first = store.load_or_create(self.path, ALPHA, NOW)
        (self.path / "tls.crt").unlink()
        second = store.load_or_create(self.path, ALPHA, NOW)
        self.assertEqual((second.fingerprint, second.key_pem), (first.fingerprint, first.key_pem))
        self.assertEqual(store.load_or_create(self.path, ALPHA, NOW), second)

    def test_certificate_without_key_is_not_replaced(self) -> None:
        """A lost key is reported, not silently succeeded by another identity."""
        store.load_or_create(self.path, ALPHA, NOW)
        (self.path / "tls.key").unlink()
        self.assertIn("bring the key back", self.refused())
        self.assertFalse((self.path / "tls.key").exists())

    def test_damaged_files_are_reported_with_their_place(self) -> None:
        """The sentence about an unusable file says where it is."""
        store.load_or_create(self.path, ALPHA, NOW)
        (self.path / "tls.crt").write_bytes(b"garbage")
        self.assertIn(str(self.path), self.refused())

    def test_failed_write_leaves_nothing(self) -> None:
        """When the file cannot be put in place, neither it nor a temporary one stays."""
        taken = self.path / "tls.key"
        (taken / "not empty").mkdir(parents=True)
        self.assertRaises(OSError, store._create, taken, b"x")
        self.assertEqual(list(self.path.iterdir()), [taken])

    def test_unusable_place_is_reported(self) -> None:
        """A path under a file is an IdentityError, not a traceback."""
        self.path.parent.parent.mkdir(parents=True)
        self.path.parent.write_text("a file")
        self.assertIn("cannot keep the cluster's key", self.refused())

    def test_named_files_are_loaded_and_guarded(self) -> None:
        """Files that the user names load alike, missing ones are named, open ones refused."""
        pair = store.load_or_create(self.path, ALPHA, NOW)
        key, certificate = self.path / "tls.key", self.path / "tls.crt"
        self.assertEqual(store.load_files(key, certificate), pair)
        self.patch(os, "environ", {**os.environ, "HOME": str(self.path)})
        self.assertEqual(store.load_files("~/tls.key", "~/tls.crt"), pair)
        key.chmod(0o644)
        self.assertRaisesRegex(IdentityError, "chmod 600", store.load_files, key, certificate)
        self.assertRaisesRegex(IdentityError, "absent", store.load_files, self.path / "absent", certificate)


class SecretStoreTests(SynchronousTestCase):
    """A Kubernetes Secret."""

    def test_round_trip(self) -> None:
        """What is put into a Secret comes out of it."""
        pair = certs.generate(ALPHA, NOW)
        self.assertEqual(store.from_secret(store.to_secret(pair)), pair)
        self.assertEqual(sorted(store.to_secret(pair)), ["tls.crt", "tls.key"])

    def test_incomplete_or_damaged_secret_is_reported(self) -> None:
        """A Secret without an entry, without base64 or without PEM has its sentence."""
        good = store.to_secret(certs.generate(ALPHA, NOW))
        for data, sentence in (
            ({}, "no entry tls.key"),
            ({**good, "tls.crt": "%%%"}, "not base64"),
            ({**good, "tls.key": base64.b64encode(b"x").decode()}, "not a PEM private key"),
            (dict(list(good.items())[:1]), "no entry tls.crt"),
        ):
            self.assertRaisesRegex(IdentityError, sentence, store.from_secret, data)
