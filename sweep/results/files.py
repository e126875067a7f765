"""The files of a results directory that say what a study wants and how far it is: each is written here, and whole.

The record itself, rows and curves of runs, is written by `recorder.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lr_sweep.analysis.record.columns import PLANNED, PROPOSALS, RUNGS, WANTED
from lr_sweep.analysis.record.read import FORMAT
from lr_sweep.analysis.record.rungs import Judgement
from lr_sweep.common.files import sealed, sealed_text, write_bytes, write_json
from lr_sweep.sweep.results.directory import Results, write_parquet
from lr_sweep.sweep.study.file import study_to_yaml
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.sweep.study.study import Study


def write_wanted(results: Results, study: Study, wanted: Sequence[WantedRun]) -> None:
    """Write what the study wants, for `status`, `report` and the mirror, and the study with all defaults."""
    write_bytes(results.options(study.study), sealed_text(study_to_yaml(study)))
    write_parquet(results.wanted(study.study), [run.row() for run in wanted], WANTED)
    facts = {"study": study.study, "title": study.title, "format": FORMAT} | study.facts()
    write_json(results.facts(study.study), sealed(facts))


def write_started(results: Results, study: Study, data_dir: str, cpus: int | None) -> None:
    """Write what the live page shows in the command that resumes the study on this machine."""
    folder = str(study.files.folders[0]) if study.files is not None else None  # of its own code
    write_json(results.started(study.study), {"folder": folder, "data_dir": data_dir, "cpus": cpus})


def write_progress(results: Results, study: str, progress: Mapping[str, Any]) -> None:
    """Write how far a sweep is, for `status` and the live page."""
    write_json(results.progress(study), dict(progress))


def write_proposals(results: Results, study: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write all that was proposed for a study so far."""
    write_parquet(results.proposals(study), rows, PROPOSALS)


def write_judgements(results: Results, study: str, judgements: Iterable[Judgement]) -> None:
    """Write all that a study's early stopping has decided so far."""
    write_parquet(results.rungs(study), [asdict(each) for each in judgements], RUNGS)


def write_planned(results: Results, study: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write how long a study's runs were expected to take."""
    write_parquet(results.planned(study), rows, PLANNED)


def write_timings(results: Results, entries: Sequence[Mapping[str, Any]]) -> None:
    """Write what `plan --measure` has timed."""
    write_json(results.timings, sealed({"timings": list(entries)}))


def write_cohort_sizes(results: Results, most: Mapping[str, int]) -> None:
    """Write how many runs of a cell train at once, where they ran out of memory."""
    write_json(results.cohort_sizes, dict(most))
