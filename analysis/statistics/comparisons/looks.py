"""Levels for looking at data as seeds arrive: tests at every look, with one error over all of them.

Group-sequential boundaries by error spending (Lan and DeMets 1983; Jennison and Turnbull 2000, chapters 7 and 11). They
are exact for normal data of known variance; nominal levels carry them over to t tests.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri

from lr_sweep.analysis.statistics.comparisons.uncertainty import Floats

SPENDING = 1.5
"""At a share t of the most seeds, the share t^1.5 of the error is spent (Kim and DeMets 1987). Chosen by simulation:
docs/statistics.md."""
NUM_NODES = 64
"""Of the Gauss-Legendre rule for the density between two boundaries; more change no level's fifth digit."""
NUM_HALVINGS = 60


@cache
def nominal_levels(error: float, first: int, last: int) -> Floats:
    """Return the two-sided level of the test at each look, at `first`, `first` + 1, ... `last` seeds.

    Under no difference some look rejects with probability `error`; with fewer looks less often.
    """
    times = np.arange(first, last + 1) / last
    spent = error * times**SPENDING
    nodes, weights = np.polynomial.legendre.leggauss(NUM_NODES)
    bound = float(-ndtri(spent[0] / 2) * np.sqrt(times[0]))
    places, levels = bound * nodes, [float(spent[0])]
    density = bound * weights * _normal(places, times[0])  # times the width of each node
    for look in range(1, len(times)):
        step = times[look] - times[look - 1]
        bound = _bound(places, density, step, spent[look] - spent[look - 1])
        levels.append(float(2 * ndtr(-bound / np.sqrt(times[look]))))
        ahead = bound * nodes
        density = bound * weights * (_normal(ahead[:, None] - places, step) @ density)
        places = ahead
    return np.array(levels)


def _normal(values: Floats, variance: float) -> Floats:
    density: Floats = np.exp(-(values**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    return density


def _bound(places: Floats, density: Floats, step: float, error: float) -> float:
    """Find by halving the bound beyond which a step from the density ends with probability `error`."""
    low, high = 0.0, 20.0
    for _ in range(NUM_HALVINGS):
        middle = (low + high) / 2
        beyond = density @ (ndtr((places - middle) / step**0.5) + ndtr(-(places + middle) / step**0.5))
        low, high = (middle, high) if beyond > error else (low, middle)
    return high
