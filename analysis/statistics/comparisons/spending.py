"""Levels of a test that is repeated after every seed, so that its error holds over all repetitions."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri

from lr_sweep.analysis.statistics.selection.best import Floats

SPENDING = 1.5
"""Exponent by which the error is spent: t^1.5 of it at a share t of the most seeds (Kim and DeMets
1987)."""
NUM_NODES = 64
"""Nodes of the Gauss-Legendre rule for the density between two boundaries; more change no level's fifth digit."""


@cache
def nominal_levels(error: float, first: int, last: int) -> Floats:
    """Return the two-sided level of the test at each look, at `first`, `first` + 1, ... `last` seeds.

    Without a difference some look rejects with probability `error`; with fewer looks less often.
    These are group-sequential boundaries by error spending (Lan and DeMets 1983; Jennison and
    Turnbull 2000, chapters 7 and 11). They are exact for normal data of known variance; nominal
    levels carry them over to t tests.
    """
    times = np.arange(first, last + 1) / last
    spent = error * times**SPENDING
    nodes, weights = np.polynomial.legendre.leggauss(NUM_NODES)
    bound = float(-ndtri(spent[0] / 2) * np.sqrt(times[0]))
    places = bound * nodes
    density = bound * weights * _normal(places, times[0])  # times the width of each node
    levels = [float(spent[0])]
    for look in range(1, len(times)):
        step = times[look] - times[look - 1]
        error_of_look = spent[look] - spent[look - 1]
        bound = _bound(places, density, step, error_of_look)
        score = bound / np.sqrt(times[look])
        levels.append(float(2 * ndtr(-score)))
        ahead = bound * nodes
        arriving = _normal(ahead[:, None] - places, step) @ density
        density = bound * weights * arriving
        places = ahead
    return np.array(levels)


def _normal(values: Floats, variance: float) -> Floats:
    height = 1 / np.sqrt(2 * np.pi * variance)
    density: Floats = height * np.exp(-(values**2) / (2 * variance))
    return density


def _bound(places: Floats, density: Floats, step: float, error: float) -> float:
    """Find the bound beyond which a step from the density ends with probability `error`."""
    # Imported late: it takes 0.2 s, and few studies add seeds until pairs are decided.
    from scipy.optimize import brentq

    deviation = step**0.5

    def excess(bound: float) -> float:
        above = ndtr((places - bound) / deviation)
        below = ndtr(-(places + bound) / deviation)
        return float(density @ (above + below) - error)

    return float(brentq(excess, 0.0, 20.0, xtol=1e-15))
