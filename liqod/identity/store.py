"""Stores the cluster's key: in a directory that only the daemon can read, or in a Kubernetes Secret.

The key is the identity: it is created once, never overwritten, and never read from a file that others can read.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from liqod.identity.certs import IdentityError, KeyPair, certify, generate, load, read_key
from liqod.model.ids import ClusterID

KEY: Final = "tls.key"
CERTIFICATE: Final = "tls.crt"
MAX_BYTES: Final = 256 * 1024
"""More than any key or chain: a wrong path must not read a huge file into memory."""


def load_or_create(path: Path | str, cluster_id: ClusterID, now: datetime.datetime) -> KeyPair:
    """Return the pair in a directory (``tls.key`` and ``tls.crt``); creates it where there is none.

    A key without its certificate, as a crash between the two writes leaves it, gets a new one: the identity stays.
    Raises IdentityError when the files cannot be trusted, read or written.
    """
    directory = Path(path)
    key_path, certificate_path = directory / KEY, directory / CERTIFICATE
    try:
        _make_private(directory)
        if key_path.exists():
            key_pem = _read_private(key_path)
            if certificate_path.exists():
                return _load(key_pem, _read(certificate_path), directory)
            pair = certify(read_key(key_pem), cluster_id, now)
        elif certificate_path.exists():
            raise IdentityError(
                f"{certificate_path} is there but {key_path} is not: bring the key back, or remove the certificate to "
                "become a new cluster in the eyes of all peers"
            )
        else:
            pair = generate(cluster_id, now)
            _create(key_path, pair.key_pem)
        _create(certificate_path, pair.certificate_pem)
    except OSError as error:
        raise IdentityError(f"cannot keep the cluster's key in {directory}: {error.strerror or error}") from error
    return pair


def load_files(key_path: Path | str, certificate_path: Path | str) -> KeyPair:
    """Return the pair in two files named by the user; raises IdentityError with what is wrong with them."""
    key, certificate = Path(key_path).expanduser(), Path(certificate_path).expanduser()
    try:
        return _load(_read_private(key), _read(certificate), certificate)
    except OSError as error:
        raise IdentityError(f"cannot read {error.filename}: {error.strerror or error}") from error


def to_secret(pair: KeyPair) -> dict[str, str]:
    """Return the ``data`` of a Secret of type Opaque that holds the pair."""
    return {
        KEY: base64.b64encode(pair.key_pem).decode("ascii"),
        CERTIFICATE: base64.b64encode(pair.certificate_pem).decode("ascii"),
    }


def from_secret(data: Mapping[str, str]) -> KeyPair:
    """Return the pair in a Secret's ``data``; raises IdentityError when it holds none."""
    found = []
    for name in (KEY, CERTIFICATE):
        try:
            found.append(base64.b64decode(data[name], validate=True))
        except KeyError as error:
            raise IdentityError(
                f"the Secret has no entry {name}: bring it back, or delete the Secret to become a new cluster in the "
                "eyes of all peers"
            ) from error
        except (binascii.Error, ValueError) as error:
            raise IdentityError(f"the Secret's entry {name} is not base64") from error
    return load(found[0], found[1])


def _load(key_pem: bytes, certificate_pem: bytes, where: Path) -> KeyPair:
    try:
        return load(key_pem, certificate_pem)
    except IdentityError as error:
        raise IdentityError(f"{where}: {error}") from error


def _make_private(directory: Path) -> None:
    if not directory.is_dir():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif directory.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise IdentityError(f"others may write to {directory}, and so replace the cluster's key: chmod 700 {directory}")


def _read_private(path: Path) -> bytes:
    """Return a private file's content; checks the mode of the opened file, not of its name (TOCTOU)."""
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise IdentityError(
                f"others may read the private key {path} (mode {stat.S_IMODE(mode):04o}): chmod 600 {path}, and make a "
                "new key if anybody could have seen it"
            )
        return file.read(MAX_BYTES)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES)


def _create(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 atomically and durably: temporary file, fsync, rename, fsync of the directory."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    # The mode is given at creation, so that the key is never readable by others; O_EXCL and O_NOFOLLOW refuse what
    # somebody else put there.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # rename(2) is atomic: a reader sees the old file or the new one, also after a crash.
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # The name is in the directory, and durable only when that was synced (fsync(2)).
        os.fsync(parent)
    finally:
        os.close(parent)
