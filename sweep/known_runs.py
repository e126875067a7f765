"""Every run that a results directory knows of: from its rows, its studies, and what unfinished runs left."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from analysis.record import read_wanted_rows, recorded_studies
from analysis.text import rate_text
from sweep.results import Results
from sweep.standing import NEEDED, Row, read_ends, started_ids
from trainables.checkpoint import checkpoints

LABELS = ("task", "model", "variant", "learning_rate", "seed")
"""Columns that `RUNS` and `WANTED` share, under which people know a run."""


@dataclass(frozen=True, kw_only=True)
class KnownRun:
    """What is known of a run without reading its curve."""

    run_id: str
    labels: Row | None
    """Has `LABELS`, as the first study that wants the run names them, else as its row does; None: nobody knows."""
    end: Row | None
    """Its row of the record; None: it has not ended."""
    budgets: Mapping[str, int]
    """Gradient steps, by the studies that want the run."""
    started: bool
    """Whether it has not ended, but left a curve or a checkpoint."""

    @property
    def status(self) -> str:
        """Return how it ended, else `started` or `waiting`."""
        if self.end is not None:
            return str(self.end["status"])
        return "started" if self.started else "waiting"


def read_all_wanted(results: Results) -> dict[str, list[Row]]:
    """Return what each recorded study wants, by study.

    Raises:
        RecordError: a file of the record is damaged.
    """
    return {study: list(read_wanted_rows(results.root, study)) for study in recorded_studies(results.root)}


def known_runs(results: Results, wanted: Mapping[str, list[Row]], columns: Collection[str] = ()) -> list[KnownRun]:
    """Return every run: those of studies in their order, then the others by their labels.

    Args:
        results: a results directory.
        wanted: as `read_all_wanted` gives it; labels are taken from the first study that has the run.
        columns: of `RUNS`, to be read into `end` beside its status, steps and labels.

    Raises:
        RecordError: a file of the record is damaged.
    """
    ends = read_ends(results, None, (*NEEDED, *LABELS, *columns))
    labels: dict[str, Row] = {}
    budgets: dict[str, dict[str, int]] = {}
    for study, rows in wanted.items():
        for row in rows:
            labels.setdefault(row["run_id"], row)
            budgets.setdefault(row["run_id"], {})[study] = row["num_steps"]
    others = sorted(ends.keys() - labels.keys(), key=lambda run_id: [ends[run_id][name] for name in LABELS])
    started = started_ids(results) - ends.keys()
    unnamed = sorted(started - labels.keys())
    return [
        KnownRun(
            run_id=run_id,
            labels=labels.get(run_id, ends.get(run_id)),
            end=ends.get(run_id),
            budgets=budgets.get(run_id, {}),
            started=run_id in started,
        )
        for run_id in [*labels, *others, *unnamed]
    ]


def checkpoint_step(results: Results, run_id: str) -> int | None:
    """Return the step of a run's newest checkpoint by the name of its file; None: it has none."""
    found = checkpoints(results.checkpoints(run_id))
    return int(found[0].stem.split("-")[1]) if found else None


def run_title(labels: Row) -> str:
    """Return what people call a run: its `LABELS` in a line."""
    rate = rate_text(labels["learning_rate"])
    return "{task} {model} {variant} {rate} seed {seed}".format_map({**labels, "rate": rate})


def label(labels: Row | None, name: str) -> str:
    """Return one of a run's `LABELS` for reading."""
    if labels is None:
        return "-"
    return rate_text(labels[name]) if name == "learning_rate" else str(labels[name])
