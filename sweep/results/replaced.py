"""Recorded runs that a study wanted and would no longer want: `plan` and `run` name them before that is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lr_sweep.analysis.record.columns import PROPOSALS, RUNGS
from lr_sweep.analysis.record.read import RecordError, read_rows, read_wanted_rows, recorded_studies
from lr_sweep.analysis.record.rungs import rungs_path
from lr_sweep.common.text import counted
from lr_sweep.sweep.results.directory import Results, write_parquet
from lr_sweep.sweep.results.run_state import LABELS, Row, State, flattened, label, read_ends, started_ids
from lr_sweep.sweep.study.backbones import is_unknown
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.run import id_of

MOST_VALUES = 5
"""Of labels or options that a line names."""


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """What a study no longer wants of what it wanted when it was last run."""

    text: str | None
    """A line about the runs among them that have results; None: there are none, or none is lost."""
    cells: frozenset[Cell]
    """Cells whose runs became others under the same names: what was proposed or stopped is of the former ones."""


def replaced_by(study: Study, wanted: Sequence[WantedRun], results: Results) -> Replaced:
    """Compare what a study wants with what it wanted when it was last run; call this before that is written again."""
    rows = no_longer_wanted(study.study, wanted, results)
    unknown = {run.cell for run in wanted if is_unknown(run.run.weights_checksum)}
    rows = [row for row in rows if _cell(row) not in unknown]  # else ids are compared that are not known yet
    named = {_labels(run.row()) for run in wanted} if rows else set()
    cells = frozenset(_cell(row) for row in rows if _labels(row) in named)
    ends, started = read_ends(results, [row["run_id"] for row in rows], ("content",)), started_ids(results)
    lost = [row for row in rows if _has_results(ends.get(row["run_id"]), row["run_id"] in started)]
    return Replaced(text=_text(study, lost, wanted, ends, results) if lost else None, cells=cells)


def no_longer_wanted(study: str, wanted: Sequence[WantedRun], results: Results) -> list[Row]:
    """Return the rows of what the study wanted when it was last run, and does not want now."""
    if not results.exists() or study not in recorded_studies(results.root):
        return []
    try:
        before = read_wanted_rows(results.root, study)
    except RecordError:  # `run` writes it again
        return []
    now = {run.run_id for run in wanted}
    return [row for row in before if row["run_id"] not in now]


def restart_cells(results: Results, study: str, cells: frozenset[Cell]) -> None:
    """Drop what was proposed and stopped in cells whose runs are others now: it rests on the former ones."""
    for path, columns in ((results.proposals(study), PROPOSALS), (rungs_path(results.root, study), RUNGS)):
        rows = read_rows(path, columns) or []
        kept = [row for row in rows if _cell(row) not in cells]
        if len(kept) < len(rows):
            write_parquet(path, kept, columns)


def renamed_lines(study: Study, wanted: Sequence[WantedRun], results: Results) -> Iterator[str]:
    """Say which recorded studies have this one's runs under the name of another task, that of the study by default."""
    if study.files is None or list(study.tasks) != [study.study] or not results.exists():
        return
    contents = [run.run.content() for run in wanted]
    for other in recorded_studies(results.root):
        ends = (
            read_ends(results, [id_of(content | {"task": other}) for content in contents])
            if other != study.study
            else {}
        )
        if ends:
            yield (
                f"{counted(len(ends), 'recorded run')} of study {other} would be this study's but for the task's name, "
                f"by default the study's; with `tasks: {{{other}: {{}}}}` in the study they are not trained again"
            )


def _cell(row: Row) -> Cell:
    return Cell(row["task"], row["model"], row["variant"])


def _labels(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in LABELS)


def _has_results(end: Row | None, started: bool) -> bool:
    return started if end is None else State(end["status"]) is not State.FAILED


def _text(
    study: Study, lost: Sequence[Row], wanted: Sequence[WantedRun], ends: Mapping[str, Row], results: Results
) -> str:
    over = sum(row["run_id"] in ends and State(ends[row["run_id"]]["status"]).over for row in lost)
    alone = len({row["run_id"] for row in lost} - _wanted_by_others(study.study, results))
    up_to = "up to " if study.winners is not None else ""  # which rates these are is not known yet
    collected = f"; {alone} of them are wanted by no other study, and `gc` would offer them" if alone else ""
    return (
        f"{up_to}{counted(len(lost), 'recorded run')} of study {study.study} ({over} complete) would no longer be "
        f"wanted: {_difference(lost, wanted, ends)}{collected}"
    )


def _difference(lost: Sequence[Row], wanted: Sequence[WantedRun], ends: Mapping[str, Row]) -> str:
    """Return what the lost runs have that the study has not: labels, else options of the first that has ended."""
    now = [run.row() for run in wanted]
    for name in LABELS:
        if gone := sorted({row[name] for row in lost} - {row[name] for row in now}):
            shown = [label({name: value}, name) for value in gone]
            return f"the study has no {name.replace('_', ' ')} {_some(shown)}"
    named = {_labels(row): run for row, run in zip(now, wanted, strict=True)}
    for row in lost:
        if row["run_id"] in ends and (run := named.get(_labels(row))):
            before, after = flattened(json.loads(ends[row["run_id"]]["content"])), flattened(run.run.content())
            names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
            return f"the study has another {_some(names)}"
    return "the study has none like them"


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MOST_VALUES} more" if len(texts) > MOST_VALUES else ""
    return ", ".join(texts[:MOST_VALUES]) + more


def _wanted_by_others(study: str, results: Results) -> set[str]:
    found: set[str] = set()
    for other in recorded_studies(results.root):
        with suppress(RecordError):  # what a damaged study wants is unknown
            found |= {row["run_id"] for row in read_wanted_rows(results.root, other)} if other != study else set()
    return found
