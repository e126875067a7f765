"""pytest's fixture `gate`: a recipe's values in a test, against a stored baseline (docs/gate.md)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lr_sweep.analysis.judge.gate import Gate
    from lr_sweep.analysis.judge.sides import Side


class Checks:
    """Checks of values of seeds, or of nights."""

    def check(self, values: Sequence[float], baseline: str | Path, **limits: Any) -> Gate:
        """Fail if the values, of seeds in their order, are shown to be worse; `limits`: of `gate.Limits`."""
        from lr_sweep.analysis.judge.gate import Comparison, Limits

        compared = Comparison(baseline=_stored(baseline), candidate=_side(values, baseline), limits=Limits(**limits))
        found = compared.gate()
        if compared.is_worse:
            pytest.fail(f"worse than {baseline}: {compared.gain_text()}")
        return found

    def accept(self, values: Sequence[float], baseline: str | Path, **limits: Any) -> Gate:
        """Fail unless the values are accepted as better."""
        found = self.check(values, baseline, **limits)
        if found.decision != "accept":
            pytest.fail(found.text())
        return found

    def drift(self, values: Sequence[float], baseline: str | Path) -> None:
        """Fail if the values, of nights in their order, became worse."""
        from lr_sweep.analysis.judge.baseline import drift_of

        is_worse, text = drift_of(_stored(baseline), _side(values, baseline).better)
        if is_worse:
            pytest.fail(text)


@pytest.fixture
def gate() -> Checks:
    """Checks of a recipe's values against a stored baseline."""
    return Checks()


def _stored(path: str | Path) -> Side:
    from lr_sweep.analysis.judge.reading import Reading
    from lr_sweep.analysis.judge.sides import side_reader

    return side_reader(str(path), "baseline")(Reading())


def _side(values: Sequence[float], baseline: str | Path) -> Side:
    from lr_sweep.analysis.judge.sides import Side

    seeds = range(len(values))
    return Side(metric=_stored(baseline).metric, values=list(values), seeds=seeds, next_seed=len(values))
