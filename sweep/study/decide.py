"""The decision of a study: which variants fresh seeds compare, and when that is settled."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, Any, Literal

from annotated_types import Interval
from pydantic import AfterValidator, Tag

from lr_sweep.analysis.record.read import Deciding
from lr_sweep.common.errors import unknown
from lr_sweep.common.limits import NotNegative
from lr_sweep.sweep.study.validation import Mistakes, Strict, or_list, shown, some_distinct


def _two(pair: tuple[str, ...]) -> tuple[str, ...]:
    if len(pair) != 2:
        raise ValueError(f"got {shown(pair)}, want the two variants of a pair")
    return some_distinct(pair)


def _different(pairs: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    some_distinct(tuple(tuple(sorted(pair)) for pair in pairs))
    return pairs


Pair = Annotated[tuple[str, ...], AfterValidator(_two)]
Pairs = Annotated[
    Annotated[Literal["all"], Tag("(one)")] | Annotated[tuple[Pair, ...], AfterValidator(_different), Tag("(list)")],
    or_list((str,), "all, or a list of pairs of variants, [[a, b], [a, c]]"),
]


class Decide(Strict):
    """Compares variants at their chosen learning rates on seeds that chose nothing, until each pair is decided."""

    pairs: Pairs = "all"
    """Variants to compare: `all`, or a list of pairs of names."""
    min_difference: NotNegative
    """Below it variants are equal, in points or the metric's unit; 0: none are called equal."""
    max_seeds: Annotated[int, Interval(ge=2, le=200)] = 20
    """Fresh seeds of a cell, at most."""
    error: Annotated[float, Interval(ge=1e-6, le=0.5)] = 0.05
    """Probability of a wrong decision, over all pairs and looks."""

    @property
    def recorded(self) -> Deciding:
        """What reports read of it."""
        return Deciding(**dict(self))

    def facts(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return self.model_dump(mode="json")

    def check(self, cells: Iterable[tuple[str, str, str]], seeds: Collection[int], space: Collection[str]) -> None:
        """Raise what does not go together with a study's cells, its seeds, and the options that its search chooses."""
        cells = list(cells)
        variants = list(dict.fromkeys(variant for _, _, variant in cells))
        with Mistakes() as mistakes:
            for index, pair in enumerate(() if isinstance(self.pairs, str) else self.pairs):
                for place, name in enumerate(pair):
                    if name not in variants:
                        mistakes.add(unknown("variant", name, variants), "decide", "pairs", index, place)
        with Mistakes() as mistakes:
            if not self.recorded.pairs_among(cells):
                mistakes.add("no task and model has both variants of a pair: nothing to decide", "decide")
            if len(seeds) < 2:  # without it the first two fresh seeds may seem to have no noise
                mistakes.add("got 1, want at least 2 with `decide`: they say how noisy each variant is", "seeds")
            if max(seeds) + self.max_seeds >= 2**63:
                mistakes.add("want smaller ones: the fresh seeds of `decide` are numbered above them", "seeds")
            if space:
                text = "rates beside the chosen one have other options, and say nothing of its noise"
                mistakes.add(f"does not go with `search.space`: {text}; fix the options, or leave this out", "decide")
