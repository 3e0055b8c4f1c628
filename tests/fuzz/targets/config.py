"""The configuration: a file of TOML and variables of the environment, which a person writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from liqod.config.load import SettingsError, parse
from liqod.config.schema import Settings
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


TARGETS: Final[Mapping[str, Target]] = {"toml": toml}
SEEDS: Final[Mapping[str, list[bytes]]] = {
    "toml": [
        b'[cluster]\nid = "milan"\nname = "milan.site"\n[network]\nmode = "auto"\npools = ["10.64.0.0/10"]\n',
        b'[peering]\nport = 5872\nadvertise-port = 1e9\nautojoin-untrusted = true\n[hosting]\nvolumes = ["nfs"]\n',
        b"[[network.export]]\naddress = 1979-05-27T07:32:00Z\n[kubernetes]\nkubeconfig = '''x'''\n",
        b"5872",
        b'["10.0.0.0/8", "fd00::/8"]',
    ]
}
