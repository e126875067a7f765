"""What was proposed for a cell: rates, by a search or a refinement, with their options, and which have all seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from lr_sweep.sweep.study.space import Options


@dataclass(frozen=True, kw_only=True)
class Proposed:
    """Learning rates of a cell, which are distinct, so that each also names its options."""

    rates: tuple[float, ...] = ()
    """In ascending order."""
    options: Mapping[float, Options] = field(default_factory=dict)
    """Of rates that have options of their own."""
    winners: frozenset[float] | None = None
    """Rates that are trained with all seeds, the others with the study's first; None: all are."""

    def has_seed(self, rate: float, is_first: bool) -> bool:
        """Return whether a rate is trained with a seed of the study."""
        return is_first or self.winners is None or rate in self.winners


NOTHING = Proposed()


def options_text(options: Options) -> str | None:
    """Return options as JSON, as the record has them; None if there are none."""
    return json.dumps(dict(options), sort_keys=True) if options else None
