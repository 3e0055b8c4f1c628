"""What a person writes: the configuration, as a file of TOML and variables of the environment, and kubeconfigs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from unittest.mock import patch

# Imported here, since it takes longer than any input may.
from kubernetes.config.kube_config import KubeConfigLoader

from liqod.config.load import SettingsError, parse
from liqod.config.schema import Settings
from liqod.kube.connection.account_token import AccountToken
from liqod.kube.connection.config import ConfigError, load
from tests.fuzz.cost import Target

ROOT: Final = Path(__file__).parents[3]
VARIABLES: Final = ("LIQOD_NETWORK__POOLS", "LIQOD_PEERING__PORT", "LIQOD_CLUSTER__NAME", "LIQOD_HOSTING__VOLUMES")


def toml(data: bytes) -> None:
    """A file, or the value of a variable: settings, or all that is wrong with it in sentences of one line."""
    text = data.decode("utf-8", "replace")
    for source, environment in ((text, {}), ("", dict.fromkeys(VARIABLES, text))):
        try:
            assert isinstance(parse(source, environment), Settings)
        except SettingsError as error:
            assert error.problems
            for problem in error.problems:
                assert problem


LARGEST: Final = 384
"""Bytes of a kubeconfig that are read: it is no stranger's, and what YAML costs grows with it."""


def kubeconfig(data: bytes) -> None:
    """A file: a configuration whose fields are of their types, or a sentence. No program that it names is run."""
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(KubeConfigLoader, "_load_from_exec_plugin", lambda _: None),
        patch.object(KubeConfigLoader, "_load_auth_provider_token", lambda _: None),
    ):
        path = Path(folder, "kubeconfig")
        path.write_bytes(data[:LARGEST])
        try:
            config = load(str(path))
            token = config.token() if config.token is not None else ""
        except ConfigError as error:
            assert str(error)
            return
    assert isinstance(config.server, str) and isinstance(config.tls_server_name, str) and isinstance(token, str)
    assert all(isinstance(pem, bytes | None) for pem in (config.ca_pem, config.client_cert_pem, config.client_key_pem))
    if isinstance(config.token, AccountToken) and (claims := config.token.claims) is not None:
        assert claims.subject and claims.uid


TARGETS: Final[Mapping[str, Target]] = {"toml": toml, "kubeconfig": kubeconfig}
SEEDS: Final[Mapping[str, list[bytes]]] = {
    "toml": [
        b'[cluster]\nid = "milan"\nname = "milan.site"\n[network]\nmode = "auto"\npools = ["10.64.0.0/10"]\n',
        b'[peering]\nport = 5872\nadvertise-port = 1e9\nautojoin-untrusted = true\n[hosting]\nvolumes = ["nfs"]\n',
        b"[[network.export]]\naddress = 1979-05-27T07:32:00Z\n[kubernetes]\nkubeconfig = '''x'''\n",
        b"5872",
        b'["10.0.0.0/8", "fd00::/8"]',
    ],
    "kubeconfig": [
        b"current-context: a\nclusters: [{name: c, cluster: {server: 'https://192.0.2.1:6443'}}]\n"
        b"contexts: [{name: a, context: {cluster: c, user: u}}]\n"
        b"users: [{name: u, user: {token: e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0.c2ln, tokenFile: t}}]\n",
        b'{"current-context":"a","clusters":[{"name":"c","cluster":{"server":"https://a","tls-server-name":"b"}}],'
        b'"contexts":[{"name":"a","context":{"cluster":"c","user":"u"}}],'
        b'"users":[{"name":"u","user":{"client-certificate-data":"Yg==","client-key-data":"Yg=="}}]}',
        b'{"current-context":"a","clusters":[{"name":"c","cluster":{"server":"https://a"}}],'
        b'"contexts":[{"name":"a","context":{"cluster":"c","user":"u"}}],'
        b'"users":[{"name":"u","user":{"tokenFile":"x"}}]}',
        b"current-context: a\ncontexts: [{name: a, context: &c {cluster: c, user: u}}]\n"
        b"clusters: [{name: c, cluster: *c}]\n",
        b'current-context: "a\\0"\nusers:\n- name: u\n  user: {exec: {command: plugin}, username: u, password: p}\n',
    ],
}
