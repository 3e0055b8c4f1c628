"""What a simulated container does: what it prints, how long it runs, how it exits. Pure.

Read from the annotations ``kubesandbox/run-seconds`` and ``kubesandbox/exit-code``, else from a shell-like
command made of ``echo TEXT``, ``sleep N``, ``exit N``, ``true`` and ``false`` joined by ``;`` or ``&&``. Every other
command, and a container without one, runs until it is stopped.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from kubesandbox.kinds.kinds import Json

RUN_SECONDS: Final = "kubesandbox/run-seconds"
EXIT_CODE: Final = "kubesandbox/exit-code"
_SLEEP: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)?")
_UNITS: Final = {None: 1, "s": 1, "m": 60, "h": 3600}


@attrs.frozen
class Play:
    """``lines`` are (seconds after the start, text); ``seconds`` is None for a container that runs on."""

    lines: tuple[tuple[float, str], ...]
    seconds: float | None
    exit_code: int = 0


def read(container: Json, annotations: Mapping[str, str]) -> Play:
    """Return what a container will do."""
    if RUN_SECONDS in annotations or EXIT_CODE in annotations:
        try:
            seconds = float(annotations.get(RUN_SECONDS, "0"))
            return Play((), seconds, int(annotations.get(EXIT_CODE, "0")))
        except ValueError:
            return Play((), None)
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if len(words) >= 3 and words[0].rsplit("/", 1)[-1] in ("sh", "bash", "ash") and words[1] == "-c":
        return _shell(words[2])
    return _steps([words]) if words else Play((), None)


def _shell(text: str) -> Play:
    steps = []
    for part in re.split(r";|&&|\n", text):
        try:
            words = shlex.split(part)
        except ValueError:
            return Play((), None)
        if words:
            steps.append(words)
    return _steps(steps)


def _steps(steps: Sequence[Sequence[str]]) -> Play:
    lines: list[tuple[float, str]] = []
    elapsed, code = 0.0, 0
    for words in steps:
        name, arguments = words[0].rsplit("/", 1)[-1], list(words[1:])
        match name:
            case "echo":
                lines.append((elapsed, " ".join(arguments)))
                code = 0
            case "sleep" if len(arguments) == 1 and (found := _SLEEP.fullmatch(arguments[0])):
                elapsed += float(found[1]) * _UNITS[found[2]]
                code = 0
            case "true" | ":":
                code = 0
            case "false":
                code = 1
            case "exit":
                code = int(arguments[0]) if arguments and arguments[0].isdigit() else code
                return Play(tuple(lines), elapsed, code)
            case _:
                return Play(tuple(lines), None)
    return Play(tuple(lines), elapsed, code)
