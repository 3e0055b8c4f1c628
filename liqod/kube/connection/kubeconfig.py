"""Reads kubeconfig files and the in-cluster environment with the ``kubernetes`` package, as plain data.

The package costs a third of a second of CPU and 17 MiB once it is imported, for files that are read at the start. So a
process that runs for long has ``read_apart`` do it in a process of its own: this module with two arguments, KUBECONFIG
and CONTEXT, writes one JSON object, for which it imports nothing else of liqod.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

PATIENCE: Final = 60.0
"""Seconds for reading in another process; an exec plugin may ask a server."""


class KubeconfigError(Exception):
    """A kubeconfig, or the in-cluster environment, cannot be used; the message says which and why."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What a context of a kubeconfig names, its files read; certificates and the key are PEM, ``token`` the bearer's.

    ``token_file`` is absolute, empty without one. ``names_token``: the user's entry has a token of its own;
    ``has_plugin``: an exec plugin gave what there is.
    """

    server: str
    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    insecure: bool = False
    tls_server_name: str = ""
    token: str = ""
    token_file: str = ""
    names_token: bool = False
    has_plugin: bool = False

    def __repr__(self) -> str:
        return f"Source({self.server!r})"


class _Answer(msgspec.Struct):
    source: Source | None = None
    error: str = ""


def read(named: str, context: str) -> Source:
    """Return what a kubeconfig's context says; an empty name is the in-cluster environment. Raises KubeconfigError.

    Several files are joined by the path separator, as in ``$KUBECONFIG``. Blocks, and may run an exec plugin.
    """
    return _from_files(named, context) if named else _in_cluster()


def read_apart(named: str, context: str) -> Source:
    """Do the same as ``read`` in another process, which has imported nothing that stays."""
    # -P: what lies in the working directory is not imported.
    command = [sys.executable, "-P", "-m", __spec__.name, named, context]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=PATIENCE, check=False)  # noqa: S603
        answer = msgspec.json.decode(done.stdout, type=_Answer)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        what = f"the kubeconfig {named}" if named else "the in-cluster configuration"
        raise KubeconfigError(f"{what} cannot be read in a process of its own: {type(error).__name__}") from error
    if answer.source is None:
        raise KubeconfigError(answer.error)
    return answer.source


def files(named: str) -> list[Path]:
    """Return the existing ones of several files, joined as in ``$KUBECONFIG``."""
    paths = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
    return [path for path in paths if path.is_file()]


def _in_cluster() -> Source:
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, incluster_config, load_incluster_config

    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)
        ca = _content(configuration.ssl_ca_cert)
    except (ConfigException, OSError) as error:
        raise KubeconfigError(
            f"the in-cluster configuration is incomplete: {error}; does the pod have a service account token mounted?"
        ) from error
    return Source(server=configuration.host, ca=ca, token_file=str(incluster_config.SERVICE_TOKEN_FILENAME))


def _from_files(named: str, context: str) -> Source:
    from kubernetes.config import ConfigException

    try:
        context = context or _first_context(named)
        user = _user(named, context)
        with tempfile.TemporaryDirectory(prefix="liqod-") as scratch:
            # The kubernetes package writes embedded certificates to files; they are read back and removed at once.
            configuration = _loaded(named, context, scratch)
            if getattr(configuration, "proxy", None) and any(
                "proxy-url" in part.read_text("utf-8") for part in files(named)
            ):
                raise KubeconfigError(
                    f"{named} names a proxy-url, which is not supported: the connection must be direct"
                )
            return Source(
                server=configuration.host,
                ca=_content(configuration.ssl_ca_cert),
                certificate=_content(configuration.cert_file),
                key=_content(configuration.key_file),
                insecure=not configuration.verify_ssl,
                # What is no text in quotes may be a number in YAML.
                tls_server_name=str(configuration.tls_server_name or ""),
                token=_bearer(configuration, named),
                token_file=_token_file(user, named),
                names_token="token" in user,
                has_plugin="exec" in user,
            )
    except KubeconfigError:
        raise
    except (ConfigException, OSError) as error:
        raise KubeconfigError(f"the kubeconfig {named} cannot be used: {error}") from error
    except Exception as error:
        # A broken file raises arbitrary errors in the loader. Later lines of the message may quote the file: drop them.
        detail = next(iter(str(error).splitlines()), "")
        raise KubeconfigError(f"the kubeconfig {named} cannot be used: {type(error).__name__}: {detail}") from error


def _token_file(user: Any, named: str) -> str:
    """Return the file that a user's entry names; a relative path is relative to its kubeconfig."""
    if "tokenFile" not in user:
        return ""
    return str(Path(getattr(user, "path", None) or named).expanduser().parent / str(user["tokenFile"]))


def _loaded(named: str, context: str, scratch: str) -> Any:
    from kubernetes.client import Configuration
    from kubernetes.config import load_kube_config

    configuration = Configuration()
    load_kube_config(
        config_file=named,
        context=context or None,
        client_configuration=configuration,
        persist_config=False,
        temp_file_path=scratch,
    )
    return configuration


def _first_context(named: str) -> str:
    """Return the current context of the first of several files that has one; empty for a single file.

    Source: Kubernetes, "Organizing Cluster Access Using kubeconfig Files": the first file to set a value wins. The
    kubernetes package takes the last one's.
    """
    from kubernetes.config.kube_config import KubeConfigMerger

    paths = files(named)
    for path in paths if len(paths) > 1 else ():
        current = KubeConfigMerger(str(path)).config.safe_get("current-context")
        if current:
            return str(current)
    return ""


def _user(named: str, context: str) -> Any:
    """Return the user entry of a kubeconfig, the source of the credentials; the loader does not expose it."""
    from kubernetes.config.kube_config import KubeConfigMerger

    whole = KubeConfigMerger(named).config
    chosen = whole["contexts"].get_with_name(context or whole["current-context"])["context"]
    found = whole["users"].get_with_name(chosen["user"], safe=True) if chosen.safe_get("user") else None
    return found["user"] if found and found.safe_get("user") else {}


def _bearer(configuration: Any, named: str) -> str:
    value = str(configuration.api_key.get("BearerToken") or "")
    if not value:
        return ""
    scheme, _, token = value.partition(" ")
    if scheme.lower() != "bearer":
        raise KubeconfigError(f"{named} names a user with password, which Kubernetes no longer knows; use a token")
    return token.strip()


def _content(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path else None


def main(named: str, context: str) -> None:
    """Write what is read, or why not, to standard output: what ``read_apart`` takes."""
    try:
        answer = _Answer(read(named, context))
    except KubeconfigError as error:
        answer = _Answer(error=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
