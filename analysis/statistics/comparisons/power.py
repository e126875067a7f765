"""How large a difference must be for a comparison to find it."""

from __future__ import annotations

from scipy.special import nctdtrinc, stdtrit

from lr_sweep.analysis.statistics.selection.best import Floats

POWER = 0.8
"""Share of studies in which a difference is to be found."""


def findable_difference(sem: Floats, dof: Floats, level: Floats) -> Floats:
    """Return the true difference that a two-sided t test finds with probability `POWER`.

    Args:
        sem: standard error of the difference.
        dof: its degrees of freedom.
        level: level of the test.
    """
    limit = -stdtrit(dof, level / 2)
    found: Floats = sem * nctdtrinc(dof, 1 - POWER, limit)
    return found
