"""Reading the record, of which `analysis.record.columns` says what its columns mean.

`record.paths` says where the files are. Every file is whole or absent (written beside, then renamed).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:  # takes longer to import than reading a thousand runs does
    import pandas as pd

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.access import RecordError, UnreadableError, closed_folder, unreadable
from lr_sweep.analysis.record.columns import CURVES, PLANNED, PROPOSALS, RUNS, WANTED, Columns, table
from lr_sweep.analysis.record.index import rows_of
from lr_sweep.analysis.record.json_columns import JSON_OF_RUNS, checked
from lr_sweep.analysis.record.parquet import FORMAT, damaged, read_each, read_table
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.common.files import is_changed, read_plain
from lr_sweep.common.text import RATES, rates_text

MAX_JSON = 1_000_000
"""Bytes of a file of JSON."""
SEEDS = range(2, 1001)
"""Fresh seeds of a cell, at most: every number of them has a look."""


@dataclass(frozen=True, kw_only=True)
class SearchRange:
    """Where a study's learning rates were searched, key `search` of `study.json`."""

    sampler: str
    low: float
    high: float
    rates: int
    """Learning rates that each cell is to try."""
    space: Sequence[str] = ()
    """Options that are chosen with each learning rate."""

    @classmethod
    def from_json(cls, content: Any) -> SearchRange:
        """Read what the study file has of it; raises ValueError."""
        try:
            found = cls(**content)
        except TypeError as error:
            raise ValueError(f"got the search {content!r}") from error
        ends = all(isinstance(end, int | float) and 0 < end < math.inf for end in (found.low, found.high))
        texts = isinstance(found.space, list | tuple) and all(isinstance(each, str) for each in found.space)
        if not (ends and texts and isinstance(found.rates, int)):
            raise ValueError(f"got the search {content!r}, want two rates, a whole number and names of options")
        return found


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """What a study adds to its grid once that has ended, key `refine` of `study.json`."""

    rates: int
    """Learning rates that each cell is to get."""
    proposed: Mapping[tuple[str, str, str], int]
    """How many each cell has so far, by task, model and variant."""


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """Which variants fresh seeds compare, and when that is settled; key `decide` of `study.json`."""

    pairs: Sequence[Sequence[str]] | None
    """Pairs of variants; None: all."""
    min_difference: float
    """Variants that differ by less are equal, in points or the metric's unit; 0: none are called equal."""
    max_seeds: int
    """Fresh seeds of a cell, at most."""
    error: float
    """Over all pairs and looks."""

    @classmethod
    def from_json(cls, content: Any) -> Deciding:
        """Read what the study file has of it; raises ValueError."""
        try:
            pairs = None if content["pairs"] == "all" else tuple(map(tuple, content["pairs"]))
            found = cls(**content | {"pairs": pairs})
        except (KeyError, TypeError) as error:
            raise ValueError(f"got {content!r} as decide") from error
        known = all(isinstance(each, int | float) for each in (found.min_difference, found.error))
        known = known and isinstance(found.max_seeds, int)
        if not (known and 0 <= found.min_difference < math.inf and 0 < found.error < 1 and found.max_seeds in SEEDS):
            raise ValueError(f"got {content!r} as decide, want numbers: {SEEDS[0]} seeds or more, an error below 1")
        return found

    def pairs_among(self, cells: Sequence[tuple[str, str, str]]) -> list[tuple[int, int]]:
        """Return which cells are compared with each other, by their indices: those of one task and model."""
        found = []
        for first, second in combinations(range(len(cells)), 2):
            pair, alike = (cells[first][2], cells[second][2]), cells[first][:2] == cells[second][:2]
            if alike and (self.pairs is None or pair in self.pairs):
                found.append((first, second))
            elif alike and self.pairs and pair[::-1] in self.pairs:
                found.append((second, first))
        return found


@dataclass(frozen=True, kw_only=True)
class StudyInfo:
    """`studies/<study>/study.json`; of a table, what `judge` knows of it."""

    study: str
    title: str
    metric: Metric = ACCURACY
    """Keys `metric`, absent: accuracy, and `selection`, which model of a run is measured, absent: the best."""
    search: SearchRange | None = None
    """Key `search`, absent: the learning rates are a grid or a list."""
    refinement: Refinement | None = None
    """None: the study adds no rates by itself."""
    winners: int | None = None
    """How many learning rates of a cell get all seeds, the best by the first one; None: all."""
    stops_early: bool = False
    """Key `stop_early`, absent: every run is to train to its budget."""
    decide: Deciding | None = None
    """Absent: the runs that choose the learning rates also compare the variants."""
    paired: bool = False
    """Key `paired`: whether variants are compared by seed."""
    equal_within: float | None = None
    """Key `equal_within`, in points of percent, or in the metric's unit; None: no variants are called equal."""
    target: float | None = None
    """Key `target`, in percent or in the metric's unit; None: the worst variant's best."""
    mirrors_all: bool = False
    """Key `mirror`, absent: MLflow has at most 100 evaluations of a run."""
    from_table: bool = False
    """Whether its runs are those of a user's table; nothing published is shown beside them."""

    @property
    def kind(self) -> str:
        """Return what its name is the name of, as captions say it."""
        return "Table" if self.from_table else "Study"


def check_format(results: Path) -> None:
    """Make sure that this code can read the results directory.

    Raises RecordError if there is none, it is no results directory, its format is another one, or this user may not
    read its folders.
    """
    paths = Paths(results)
    path = paths.format
    if not _there(results):
        raise RecordError(f"no results directory at {results}: give the one that the study was run with")
    if not _there(path):
        raise RecordError(f"{results} has no format.json, so it is no results directory: give one that a study made")
    found = _read_json(path, f'write {{"format": {FORMAT}}} into it').get("format")
    if found != FORMAT:
        raise RecordError(
            f"{path}: got format {found!r}, want {FORMAT}: read it with the version of this program that wrote it, "
            "or run the study into a new results directory"
        )
    # Else they would seem to be empty.
    if closed := [text for folder in (paths.runs, paths.curves, paths.studies) if (text := closed_folder(folder))]:
        raise UnreadableError("\n".join(closed))


def recorded_studies(results: Path) -> list[str]:
    """Return the names of the studies that were run into a results directory; none if it does not exist.

    Raises UnreadableError if this user may not read a study's folder.
    """
    return sorted(folder.name for folder in Paths(results).study_folders() if _there(folder / "study.json"))


def read_study(results: Path, study: str) -> StudyInfo:
    """Read a study's name, title and metric; raises RecordError if there is no such study, or its file is damaged."""
    path = Paths(results).facts(study)
    if not _there(path):
        if path.parent.is_dir():
            raise RecordError(f"no {path}: run the study again to write it")
        known = recorded_studies(results)
        raise RecordError(f"no study {study!r} in {results}: it has {', '.join(known) or 'none; run a study first'}")
    content = _read_json(path)
    try:
        return _study_info(results, study, content)
    except ValueError as error:
        raise RecordError(f"{path}: {error}: run the study again") from error


def _study_info(results: Path, study: str, content: Mapping[str, Any]) -> StudyInfo:
    """Read the keys of `study.json`; raises ValueError with what is wrong."""
    if not {"study", "title"} <= content.keys():
        raise ValueError(f"got keys {sorted(content)}, want study and title")
    for key in ("study", "title"):
        if not isinstance(content[key], str):
            raise ValueError(f"got {content[key]!r} as {key}, want a text")
    if (selection := content.get("selection", "best")) not in ("best", "final"):
        raise ValueError(f"got the selection {selection!r}, want best or final")
    numbers = {"refine": int, "winners": int, "equal_within": int | float, "target": int | float}
    for key, kind in numbers.items():
        if not isinstance(content.get(key), kind | None):
            raise ValueError(f"got {content[key]!r} as {key}, want a number")
    if not isinstance(paired := content.get("paired", False), bool):
        raise ValueError(f"got paired {paired!r}, want true or false")
    refinement = None
    if (rates := content.get("refine")) is not None:
        rows = read_rows(Paths(results).proposals(study), PROPOSALS) or []
        cells = Counter((row["task"], row["model"], row["variant"]) for row in rows if row["sampler"] == "refine")
        refinement = Refinement(rates=rates, proposed=cells)
    metric = Metric.from_json(content["metric"]) if "metric" in content else ACCURACY
    return StudyInfo(
        study=content["study"],
        title=content["title"],
        metric=replace(metric, model=selection),
        search=SearchRange.from_json(content["search"]) if "search" in content else None,
        refinement=refinement,
        winners=content.get("winners"),
        stops_early="stop_early" in content,
        decide=Deciding.from_json(content["decide"]) if "decide" in content else None,
        paired=paired,
        equal_within=content.get("equal_within"),
        target=content.get("target"),
        mirrors_all=content.get("mirror") == "all",
    )


def read_wanted(results: Path, study: str) -> pd.DataFrame:
    """Read what `read_wanted_table` does as a frame; raises RecordError for a learning rate outside `RATES`, too."""
    found = _frame(read_wanted_table(results, study), WANTED)
    wrong = found.loc[~found["learning_rate"].between(*RATES), "learning_rate"]
    if len(wrong):
        path = Paths(results).wanted(study)
        raise RecordError(f"{path}: got the learning rate {wrong.iloc[0]:g}, want {rates_text()}: mend what wrote it")
    return found


def read_planned(results: Path, study: str) -> pd.DataFrame:
    """Read what runs were planned to take: the columns of `PLANNED`; no rows if nothing was planned."""
    return _frame(read_table(Paths(results).planned(study), PLANNED) or table([], PLANNED), PLANNED)


def read_wanted_rows(results: Path, study: str, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Read what `read_wanted_table` does as plain values; `names`: these columns alone."""
    found = read_wanted_table(results, study)
    return list((found.select(list(names)) if names else found).to_pylist())


def read_wanted_table(results: Path, study: str) -> pa.Table:
    """Read which runs a study wants: the columns of `WANTED`, in the study's order.

    Raises RecordError if the file is missing, damaged, has no rows or more than a study can have.
    """
    path = Paths(results).wanted(study)
    found = read_table(path, WANTED, limited=True)
    if found is None:
        raise RecordError(f"no {path}: run the study again to write it")
    if not found.num_rows:
        raise RecordError(f"{path} wants no runs: give the study at least one task, model, variant, rate and seed")
    return checked(path, found, ["options"])


def read_runs(
    results: Path, run_ids: Iterable[str] | None = None, names: Collection[str] | None = None
) -> pd.DataFrame:
    """Read the rows of finished runs: the columns of `RUNS` that are named, or all. Times are in UTC and know it.

    Runs without a row are left out; None as their ids: all. Fewer columns are read faster. Raises RecordError if a file
    is damaged.
    """
    columns = _named(RUNS, names)
    return _frame(_checked_rows(results, run_ids, columns), columns)


def read_run_rows(results: Path, run_ids: Iterable[str] | None, names: Collection[str]) -> list[dict[str, Any]]:
    """Read as `read_runs`, but plain values: quick, as it needs no pandas."""
    return _checked_rows(results, run_ids, _named(RUNS, names)).to_pylist()


def read_curves(
    results: Path, run_ids: Iterable[str] | None = None, names: Collection[str] | None = None
) -> pd.DataFrame:
    """Read evaluations, with the columns of `CURVES`, ordered by step within a run; arguments as of `read_runs`.

    Read them after `read_runs`: a run's curve is written before its row, so every row then has its curve. Infinite
    accuracies are no values: NaN. Raises RecordError if a file is damaged.
    """
    columns, folder = _named(CURVES, names), Paths(results).curves
    if run_ids is None:
        run_ids = sorted(path.stem for path in folder.glob("*.parquet") if not path.name.startswith("."))
    found = read_each(folder, list(dict.fromkeys(run_ids)), columns)
    frame = _frame(pa.concat_tables([table([], columns), *(rows for _, rows in found)]), columns)
    measured = [name for name in frame.columns if name.endswith("_accuracy")]
    return frame.assign(**{name: frame[name].replace([math.inf, -math.inf], math.nan) for name in measured})


def read_rows(path: Path, columns: Columns) -> list[dict[str, Any]] | None:
    """Read one file of the record as plain values; None if there is none.

    Raises RecordError if it is damaged, or larger than a table of the record can be.
    """
    found = read_table(path, columns, limited=True)
    try:
        return None if found is None else checked(path, found, ["options"]).to_pylist()
    except (OverflowError, ValueError) as error:  # a time that no calendar has
        raise damaged(path, error) from error


def _checked_rows(results: Path, run_ids: Iterable[str] | None, columns: Columns) -> pa.Table:
    return checked(Paths(results).runs, rows_of(results, run_ids, columns), JSON_OF_RUNS)


def _named(columns: Columns, names: Collection[str] | None) -> Columns:
    return columns if names is None else tuple(column for column in columns if column.name in names)


def _frame(found: pa.Table, columns: Columns) -> pd.DataFrame:
    # Plain pandas turns integers and truth values with gaps into floats and objects.
    gaps = {pa.int64(): "Int64", pa.bool_(): "boolean"}
    return found.to_pandas().astype({c.name: gaps[c.type] for c in columns if c.nullable and c.type in gaps})


def _there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            raise UnreadableError(unreadable(path, error)) from error
        return False
    except OSError as error:
        raise UnreadableError(unreadable(path, error)) from error
    return True


def _read_json(path: Path, mend: str = "run the study again to write it") -> dict[str, Any]:
    try:
        content = json.loads(read_plain(path, MAX_JSON))
    except OSError as error:
        raise UnreadableError(unreadable(path, error)) from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"cannot read {path} ({error}): {mend}") from error
    if not isinstance(content, dict):
        raise RecordError(f"{path}: got {type(content).__name__}, want a JSON object: {mend}")
    if is_changed(content):
        raise RecordError(f"cannot read {path} (its checksum is not that of its content): {mend}")
    return content
