"""`show`: everything that is known about one run, with its curve as a table."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import RUNS
from lr_sweep.analysis.record.read import check_format, read_curves
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import open_plain
from lr_sweep.common.text import aligned, failure_line, fitted, gigabytes, without_escapes
from lr_sweep.sweep.results import run_state
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import RecordedRun, Row

SHORTEST_PREFIX = 4
MAX_CANDIDATES = 10
MOST_LOG = 10_000_000
"""Most bytes of a log that are printed."""
MAX_EVALUATIONS = 20
"""Most evaluations of a curve that are shown."""
ROW = (
    "pretrained_on",
    "weights_checksum",
    "data_origin",
    "data_checksum",
    "git_commit",
    "git_dirty",
    "versions",
    "device",
    "wall_s",
    "device_s",
    "attempts",
    "lost_steps",
    "resumed",
    "not_saved",
    "started_at",
    "finished_at",
)
"""Columns of a row that are shown under their own names."""
INDENT = 2
"""Spaces before each line of a section."""

Fact = tuple[str, str]


def run_text(results: Results, given: str) -> str:
    """Return everything about a run, given by its id or the first letters of it; raises UserError or RecordError."""
    run = _whole(results, given)
    end = run.row
    failure = (end["failure"] or "").splitlines() if end is not None else []
    lines = {"traceback": failure} if len(failure) > 1 else {}
    studies = [
        (wants["study"], f"up to step {wants['num_steps']}: {wants['state']}")
        for wants in _studies(run, results)
    ]
    sections = {"wanted by": studies or [("no study", "that is recorded here")]}
    if end is not None:
        sections |= {"content": _content(end), "row": _row(end)}
    sections["files"] = _files(run.run_id, results)
    lines |= {title: aligned(facts) for title, facts in sections.items()}
    lines["curve"] = _curve_lines(results, run.run_id, run_state.metric_of(end))
    texts = [f"\n{' ' * INDENT}".join([title, *shown]) for title, shown in lines.items()]
    return "\n\n".join(["\n".join(aligned(_outcome(run))), *texts])


def _whole(results: Results, given: str) -> RecordedRun:
    return find_run(results, given, [column.name for column in RUNS])


def run_json(results: Results, given: str) -> Row:
    """Return everything about a run as content for JSON; raises as `run_text`."""
    run = _whole(results, given)
    end = run.row
    row = None
    if end is not None:
        row = dict(end) | {name: json.loads(end[name]) for name in ("content", "versions")}
    labels = {name: (run.labels or {}).get(name) for name in run_state.LABELS}
    curve = read_curves(results.root, [run.run_id]).drop(columns="run_id").to_dict("records")
    return {
        "run_id": run.run_id,
        **labels,
        "status": run.status,
        "studies": _studies(run, results),
        "row": row,
        "curve": curve,
    }


def log_text(results: Results, given: str, most_bytes: int = MOST_LOG) -> str:
    """Return the log of a run, given as for `run_text`: its end of so many bytes, at most.

    Raises UserError, also where there is none, or RecordError.
    """
    run = find_run(results, given)
    path = results.log(run.run_id)
    if path.is_symlink() or path.parent.is_symlink():
        raise UserError(
            f"{path} is a link, or in one: links in results are not followed, as they may lead anywhere"
        )
    try:
        with open_plain(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            content = file.read(most_bytes).decode(errors="replace")
        text = re.sub("\r\n?", "\n", content)
        return without_escapes(text).rstrip("\n")
    except FileNotFoundError:
        where = ""
        if results.uri:
            where = (
                f" here: it is on the machine of the sweep that trained it, not in {results.uri}"
            )
        raise UserError(
            f"run {run.run_id} ({run.status}) has no log{where}; a log begins when a sweep starts a run"
        ) from None


def find_run(results: Results, given: str, columns: Sequence[str] = ()) -> RecordedRun:
    """Return the run with an id, or the one whose id begins so, with these columns of its row.

    Raises UserError for none and for several, RecordError for a record that cannot be read.
    """
    check_format(results.root)
    if len(given) < SHORTEST_PREFIX:
        raise UserError(
            f"got {given!r} as a run, want its id or at least {SHORTEST_PREFIX} of its first letters; "
            f"`ls` lists all runs"
        )
    known = run_state.known_ids(results)
    run_ids = sorted(run_id for run_id in known if run_id.startswith(given))
    if len(run_ids) == 1:
        wanted = run_state.read_all_wanted(results, run_ids[0])
        (run,) = run_state.known_runs(results, wanted, columns, run_ids[0])
        return run
    if run_ids:
        shown = ", ".join(run_ids[:MAX_CANDIDATES])
        raise UserError(
            f"{len(run_ids)} runs begin with {given!r}; give more letters: {shown}; `ls` lists all"
        )
    raise UserError(f"no run {given!r}; `ls` lists all {len(known)} runs")


def _outcome(run: RecordedRun) -> list[Fact]:
    end, at_step = run.row, ""
    if end is not None and end["diverged_at_step"] is not None:
        at_step = f" at step {end['diverged_at_step']}"
    facts = [("run", run.run_id), ("status", f"{run.status}{at_step}{run.doubt}")]
    if end is not None:
        facts += [("failure", failure_line(end["failure"]))] if end["failure"] else []
        facts.append(("steps", f"{end['num_steps']} trained"))
        if end["best_step"] is not None:
            metric = run_state.metric_of(end)
            scores = ", ".join(
                f"{split} {metric.score_text(end[f'{split}_at_best'], digits=1)}"
                for split in ("validation", "test")
            )
            where = f"at step {end['best_step']}, where validation is {metric.best}"
            facts.append((metric.name, f"{scores}, {where}"))
    if run.labels is None:
        why = "no study here wants it, and its row is written when it ends"
        return [*facts, ("labels", f"not known: {why}")]
    return facts + [
        (name.replace("_", " "), run_state.label(run.labels, name)) for name in run_state.LABELS
    ]


def _studies(run: RecordedRun, results: Results) -> Sequence[Row]:
    ends = {} if run.row is None else {run.run_id: run.row}
    studies = []
    for study, num_steps in run.budgets.items():
        wanted = [run.wanted[study]]
        states = run_state.recorded_states(results, study, wanted, ends).states
        studies.append({"study": study, "num_steps": num_steps, "state": states[run.run_id]})
    return studies


def _content(end: Row) -> list[Fact]:
    flat = run_state.flattened(json.loads(end["content"]))
    texts = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in flat.items()
    }
    return sorted(texts.items(), key=lambda fact: "." in fact[0])


def _row(end: Row) -> list[Fact]:
    return [(name, "none" if end[name] is None else str(end[name])) for name in ROW]


def _files(run_id: str, results: Results) -> list[Fact]:
    paths = {
        "row": results.run(run_id),
        "evaluations": results.curve(run_id),
        "log": results.log(run_id),
    }
    facts = [(name, str(path) if path.exists() else "none") for name, path in paths.items()]
    if results.uri is not None:
        return [*facts, ("checkpoints", f"{results.uri}/checkpoints/{run_id}")]
    folder = results.checkpoints(run_id)
    saved = [] if folder.is_symlink() else sorted(folder.glob("*"), reverse=True)
    return facts + (
        [("checkpoint", f"{path}  {_size(path)}") for path in saved] or [("checkpoint", "none")]
    )


def _size(path: Path) -> str:
    try:
        return gigabytes(path.stat().st_size)
    except OSError as error:  # another user's, or a running sweep has saved a newer one
        return str(error.strerror)


def _curve_lines(results: Results, run_id: str, metric: Metric) -> list[str]:
    curve = read_curves(results.root, [run_id])
    if curve.empty:
        return ["no evaluations yet"]
    number = min(len(curve), MAX_EVALUATIONS)
    even = np.linspace(0, len(curve) - 1, number).round().astype(int)  # the first and the last, too
    rows = [("step", "train loss", metric.test, metric.validation)]
    for at in curve.iloc[even].to_dict("records"):
        loss = "-" if math.isnan(at["train_loss"]) else f"{at['train_loss']:.4f}"
        test = metric.score_text(at["test"])
        rows.append((str(at["step"]), loss, test, metric.score_text(at["validation"])))
    lines = fitted(rows, 1, right=range(4), indent=INDENT)
    if hidden := len(curve) - number:
        lines.append(f"{hidden} evaluations between these are not shown")
    return lines
