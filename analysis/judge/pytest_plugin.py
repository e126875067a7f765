"""pytest's fixture `gate`: a recipe's values in a test, against a stored baseline (docs/gate.md)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lr_sweep.common.errors import UserError

if TYPE_CHECKING:
    from .gate import Comparison, Gate


class Checks:
    """Checks of values of seeds, or of nights."""

    def check(self, values: Sequence[float], baseline: str | Path, **limits: Any) -> Gate:
        """Fail if the values, of at least five seeds in their order, are shown to be worse.

        `limits`: of `gate.Comparison`. Raises UserError for fewer values.
        """
        from lr_sweep.analysis.statistics.comparisons.sequential import FIRST_LOOK, is_worse

        if len(values) < FIRST_LOOK:
            raise UserError(
                f"gate.check: got {len(values)} values, want at least {FIRST_LOOK}: train further seeds"
            )
        compared = _compared(values, baseline, **limits)
        if is_worse(compared.baseline.better, compared.values):
            pytest.fail(f"worse than {baseline}: {compared.gain_text()}")
        return compared.gate()

    def drift(self, values: Sequence[float], baseline: str | Path) -> None:
        """Fail if the values, of nights in their order, became worse."""
        if text := _compared(values, baseline).drift_text():
            pytest.fail(text)


@pytest.fixture
def gate() -> Checks:
    """Checks of a recipe's values against a stored baseline."""
    return Checks()


def _compared(values: Sequence[float], baseline: str | Path, **limits: Any) -> Comparison:
    from .gate import (
        Comparison,
    )  # imported late: pytest loads this plugin for every test
    from .sides import Side, stored_side

    stored = stored_side(Path(baseline))
    side = Side(
        metric=stored.metric, seeds=range(len(values)), values=list(values), next_seed=len(values)
    )
    return Comparison(baseline=stored, candidate=side, **limits)
