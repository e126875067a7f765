"""Study -> runs: the grid written out, each run with its id, its budget and the names it has in tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.read import read_stopped
from lr_sweep.analysis.record.study import NOTHING_STOPPED, StoppedRates
from lr_sweep.datasets.task import TaskShape
from lr_sweep.trainables.pretraining.weights import WeightsSource
from lr_sweep.trainables.run import AnyRun, Run
from lr_sweep.trainables.worker.memory import trained_parameters

from .backbones import Backbone
from .cells import StudyCell
from .search import NO_OPTIONS, Options
from .study import Examples, Study

MADE_UP_RATE = 1e-3


class Cell(NamedTuple):
    """What one number of a table is about: everything of a run but learning rate and seed."""

    task: str
    model: str
    variant: str


@dataclass(frozen=True, kw_only=True)
class WantedRun:
    """A run that a study wants, up to a step budget, under the study's names."""

    run: AnyRun
    run_id: str
    """`run.run_id`, kept: a hash takes time."""
    model: str
    variant: str
    num_steps: int
    shape: TaskShape | None
    """Shape of the task's examples; None: a function of the user's own reads them."""
    weights: WeightsSource | None = None
    """Where pretrained weights are; None for random initialisation."""
    pretrained_on: str | None = None
    """Name of the weights in tables; None for random initialisation."""
    data_origin: str
    metric: Metric = ACCURACY
    options: str | None = None
    """JSON of the options that a search chose for it; None: none."""
    fresh: bool = False
    """Whether its seed is fresh: it compares variants, and chooses nothing."""

    @property
    def cell(self) -> Cell:
        """Task, model and variant."""
        return Cell(self.run.task, self.model, self.variant)

    @property
    def trained_parameters(self) -> int | None:
        """How many numbers the run trains; None: it is not known."""
        return (
            trained_parameters(self.run, self.shape)
            if isinstance(self.run, Run) and self.shape
            else None
        )

    def row(self) -> dict[str, Any]:
        """Return the run's row in `wanted.parquet`."""
        names = (
            "run_id",
            "model",
            "variant",
            "num_steps",
            "pretrained_on",
            "data_origin",
            "options",
            "fresh",
            "trained_parameters",
        )
        row = {name: getattr(self, name) for name in names}
        return row | {name: getattr(self.run, name) for name in ("task", "learning_rate", "seed")}


@dataclass(frozen=True, kw_only=True)
class Proposed:
    """Learning rates of a cell, which are distinct, so that each also names its options."""

    rates: tuple[float, ...] = ()
    """In ascending order."""
    options: Mapping[float, Options] = field(default_factory=dict)
    """Options by rate, for rates that have their own."""
    winners: frozenset[float] | None = None
    """Rates that are trained with all seeds, the others with the study's first; None: all are."""
    fresh: Mapping[float, Collection[int]] = field(default_factory=dict)
    """Seeds that compare variants, by the rate that was chosen."""

    def wins(self, rate: float) -> bool:
        """Return whether a rate is trained with all seeds of the study."""
        return self.winners is None or rate in self.winners


NOTHING = Proposed()


def options_text(options: Options) -> str | None:
    """Return options as JSON, as the record has them; None if there are none."""
    return json.dumps(dict(options), sort_keys=True) if options else None


Proposals = Mapping[Cell, Proposed]
NOTHING_PROPOSED: Proposals = {}


def wanted_runs(
    study: Study,
    backbones: Mapping[str, Backbone],
    data_dir: Path,
    proposed: Proposals = NOTHING_PROPOSED,
) -> list[WantedRun]:
    """Write out a study's grid, and what its search or refinement has proposed so far.

    Seeds are outermost, so that every cell has its first seed early. Raises DataError if data files are there but
    cannot be identified.
    """
    places, seeds = list(_places(study, backbones, data_dir, proposed)), study.seed_list()
    winning = [place for place in places if place.proposed.wins(place.rate)]
    runs = [place.run(seeds[0]) for place in places]
    runs += [place.run(seed) for seed in seeds[1:] for place in winning]
    fresh = set[int]()
    for cell in proposed.values():
        fresh.update(*cell.fresh.values())
    for seed in sorted(fresh):
        chosen = [place for place in places if seed in place.proposed.fresh.get(place.rate, ())]
        runs += [replace(place.run(seed), fresh=True) for place in chosen]
    return runs


def num_proposals(study: Study) -> int:
    """Return how many learning rates are proposed for each cell in all; 0: the study is a grid."""
    return study.search.rates if study.search is not None else study.refine or 0


def stopped_rates(study: Study, results: Path) -> StoppedRates:
    """Return the learning rates that the study's rule stopped; none without a rule: then their runs train further."""
    return read_stopped(results, study.study) if study.stop_early is not None else NOTHING_STOPPED


def grids_of(study: Study) -> dict[Cell, tuple[float, ...]]:
    """Return the learning rates that each cell has from the start, in the study's order; none for a search."""
    return {Cell(*cell[:3]): cell.learning_rates for cell in study.cell_list()}


def one_of_each(
    study: Study, backbones: Mapping[str, Backbone], data_dir: Path
) -> dict[Cell, WantedRun]:
    """Return a run of each cell, which the study need not want: without its grid, a search has a made-up rate."""
    made_up = {
        cell: NOTHING if grid else Proposed(rates=(MADE_UP_RATE,))
        for cell, grid in grids_of(study).items()
    }
    return {
        cell: runs[0]
        for cell, runs in by_cell(wanted_runs(study, backbones, data_dir, made_up)).items()
    }


def stand_in_runs(
    study: Study,
    backbones: Mapping[str, Backbone],
    data_dir: Path,
    wanted: Sequence[WantedRun],
    most_fresh: Mapping[Cell, int],
) -> list[WantedRun]:
    """Return a copy of a cell's run for each run that is not proposed yet, for what a plan counts.

    Their ids are no ids of runs. `most_fresh`: how many fresh seeds each cell gets at most.
    """
    if not (num_proposals(study) or study.winners or most_fresh):
        return []
    known = Counter((run.cell, run.fresh) for run in wanted)
    stand_ins = list[WantedRun]()
    for cell, run in one_of_each(study, backbones, data_dir).items():
        left = max(0, _num_choosing(study, cell) - known[cell, False])
        left += max(0, most_fresh.get(cell, 0) - known[cell, True])
        stand_ins += [
            replace(run, run_id=f"not-proposed-yet-{len(stand_ins) + index}")
            for index in range(left)
        ]
    return stand_ins


def _num_choosing(study: Study, cell: Cell) -> int:
    """Return how many runs choose a cell's rate."""
    num_rates, num_seeds = len(grids_of(study)[cell]) + num_proposals(study), len(study.seed_list())
    if study.winners:  # the first seed of each rate; all seeds of the winners
        return num_rates + (num_seeds - 1) * study.winners
    return num_seeds * num_rates


def fresh_allowed(study: Study) -> dict[Cell, int]:
    """Return how many fresh seeds each cell gets at most; none without `fresh`."""
    return dict.fromkeys(grids_of(study), study.fresh.max) if study.fresh else {}


def first_fresh_seed(study: Study) -> int:
    """Return the smallest number above all of the study's own seeds."""
    return max(study.seed_list()) + 1


def further_seeds(study: Study, known: Collection[int], number: int) -> list[int]:
    """Return the next fresh seeds of a cell that has some."""
    above = (seed for seed in count(first_fresh_seed(study)) if seed not in known)
    return list(islice(above, number))


class _Place(NamedTuple):
    first: WantedRun
    run_id: Callable[[float, int], str]
    """By learning rate and seed."""
    rate: float
    proposed: Proposed

    def run(self, seed: int) -> WantedRun:
        run, run_id = self.first.run.sibling(self.rate, seed), self.run_id(self.rate, seed)
        return replace(self.first, run=run, run_id=run_id)


def _places(
    study: Study, backbones: Mapping[str, Backbone], data_dir: Path, proposed: Proposals
) -> Iterator[_Place]:
    for task, cells in groupby(study.cell_list(), key=lambda cell: cell.task):
        examples = study.examples(task, data_dir)
        for cell in cells:
            backbone = backbones[cell.model] if study.starts_from_weights(cell.variant) else None
            of_cell = proposed.get(Cell(*cell[:3]), NOTHING)
            made: dict[str | None, tuple[WantedRun, Callable[[float, int], str]]] = {}
            for rate in sorted({*cell.learning_rates, *of_cell.rates}):
                options = of_cell.options.get(rate, NO_OPTIONS)
                if (text := options_text(options)) not in made:
                    first = _first(study, cell, backbone, examples, options)
                    made[text] = first, first.run.sibling_ids()
                yield _Place(*made[text], rate, of_cell)


def _first(
    study: Study, cell: StudyCell, backbone: Backbone | None, examples: Examples, options: Options
) -> WantedRun:
    """Make a run of a cell, without learning rate, seed and id."""
    return WantedRun(
        run=study.run(cell, options, examples, backbone.checksum if backbone else None),
        run_id="",
        model=cell.model,
        variant=cell.variant,
        num_steps=cell.num_steps,
        shape=examples.shape,
        weights=backbone.source if backbone else None,
        pretrained_on=backbone.description if backbone else None,
        data_origin=examples.origin,
        metric=study.measured,
        options=options_text(options),
    )


def alike(wanted: Iterable[WantedRun]) -> list[list[WantedRun]]:
    """Return the runs that differ in learning rate and seed alone, which can train together, by cell and options."""
    groups: dict[tuple[Cell, str | None], list[WantedRun]] = {}
    for run in wanted:
        groups.setdefault((run.cell, run.options), []).append(run)
    return list(groups.values())


def by_cell(wanted: Iterable[WantedRun]) -> dict[Cell, list[WantedRun]]:
    """Return the runs of each cell, cells in order of appearance."""
    cells: dict[Cell, list[WantedRun]] = {}
    for run in wanted:
        cells.setdefault(run.cell, []).append(run)
    return cells
