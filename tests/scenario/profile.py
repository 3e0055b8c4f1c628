"""How far property tests go: the same cases every time, unless the environment asks for more."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

MORE: Final = int(os.environ.get("LIQOD_SCENARIO_FACTOR", "1"))
"""How many times the usual number of cases is run; with 1 the cases are the same in every run."""


def profile(examples: int, steps: int = 50) -> settings:
    """Return the settings of a property test; failures are not made smaller, because each case takes its time."""
    return settings(
        max_examples=examples * MORE,
        stateful_step_count=steps,
        derandomize=MORE == 1,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


def run_cases(machine: Callable[[], RuleBasedStateMachine], chosen: settings) -> None:
    """Run a machine; when a case fails, print its steps, which trial does not show."""
    made: Callable[[], object] = machine
    try:
        run_state_machine_as_test(made, settings=chosen)  # type: ignore[arg-type]
    except BaseException as error:
        print("", *getattr(error, "__notes__", ()), sep="\n")
        raise
