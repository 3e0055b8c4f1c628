"""How far property tests go, and that they go the same way on continuous integration, unless more is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.environment import on_ci

MORE: Final = float(os.environ.get("LIQOD_SCENARIO_FACTOR", "1"))
"""How many times the usual number of cases is run, or which part of it; with more than 1 they are always other ones."""


def profile(examples: int, steps: int = 50) -> settings:
    """Return the settings of a property test; failures are not made smaller, because each case takes its time."""
    return settings(
        max_examples=max(1, round(examples * MORE)),
        stateful_step_count=steps,
        derandomize=on_ci() and MORE <= 1,
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
