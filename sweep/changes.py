"""Recorded runs whose code or data has changed since: what `plan` and `run` say before anything resumes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from analysis.code_versions import files_text, other_versions
from analysis.record import RecordError, read_run_rows, read_wanted_rows, recorded_studies
from datasets import SHIPPED, TASKS
from datasets.sources import version_here
from sweep.provenance import code_of
from sweep.reconcile import Reconciled
from sweep.results import Results
from sweep.runs import WantedRun
from sweep.standing import Row, State
from sweep.study import Study
from sweep.text import counted
from trainables.checkpoint import newest_history

LABELS = ("task", "model", "variant", "learning_rate", "seed")


def change_lines(
    study: str,
    wanted: Sequence[WantedRun],
    reconciled: Reconciled,
    results: Results,
    examples: Mapping[str, str] | None = None,
) -> list[str]:
    """Say which recorded runs were trained by other code or data than what is here; mostly nothing.

    Args:
        study: its name.
        wanted: its runs.
        reconciled: their states.
        results: where they are recorded. Ask before `wanted.parquet` is written again.
        examples: from `own_examples`; None: data was not loaded.
    """
    own = [run for run in wanted if run.run.task not in SHIPPED]
    return [
        *_trained_by_others(reconciled, results, partial(version_now, examples or {})),
        *(_replaced(study, own, results) if own else []),
    ]


def version_now(examples: Mapping[str, str], name: str) -> str | None:
    """Return the version of a file of the checkout, or of a task's examples, by its name; None: not known."""
    return examples.get(name) or version_here(name)


def own_examples(study: Study, data_dir: Path) -> dict[str, str]:
    """Load the study's tasks that are not shipped, and return the versions of their examples by name.

    So mismatches between `load` and `shape` end a `run` before it starts, and data that changed under the same
    `checksum` is noticed.

    Raises:
        DataError: see `load_checked`.
    """
    own = {name: task.options for name, task in study.tasks.items() if name not in SHIPPED}
    if not own:
        return {}
    from datasets.loaded import examples_version, load_checked  # imported late: `plan` loads nothing

    loaded = {name: load_checked(name, TASKS[name], options, data_dir) for name, options in own.items()}
    return {_examples_of(name): examples_version(data) for name, data in loaded.items()}


def code_of_tasks(study: Study, examples: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return for each task the versions of what its runs' numbers come from; checkpoints and the record keep them."""
    return {
        task: code_of(task, study.resources.engine)
        | {name: version for name, version in examples.items() if name == _examples_of(task)}
        for task in study.tasks
    }


def _examples_of(task: str) -> str:
    return f"the examples of {task}"


def _trained_by_others(reconciled: Reconciled, results: Results, now: Callable[[str], str | None]) -> Iterator[str]:
    seen: dict[str, tuple[str, ...]] = {}
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for run_id, code in _codes(reconciled, results).items():
        if code not in seen:
            seen[code] = tuple(sorted(other_versions(code, now)))
        if seen[code]:
            found[seen[code]].append(run_id)
    to_train = {run.run_id for run in reconciled.to_train}
    for files, run_ids in found.items():
        ends = [reconciled.ends[run_id] for run_id in run_ids if run_id in reconciled.ends]
        commits = sorted({end["git_commit"][:7] for end in ends if end["git_commit"]})
        at = f" (commit {', '.join(commits)})" if commits else ""
        were, resuming = "run was" if len(run_ids) == 1 else "runs were", sum(each in to_train for each in run_ids)
        yield f"{len(run_ids)} recorded {were} trained by another version of {files_text(files)}{at}"
        if resuming:
            yield f"{resuming} of them would resume with the version that is here: a curve of two versions"
        yield "if that changes numbers, give --results a new directory; otherwise nothing is to be done"


def _codes(reconciled: Reconciled, results: Results) -> dict[str, str]:
    """Return by run id what is known of the code that trained it: from its row, else from its newest checkpoint."""
    codes = {}
    for run_id, state in reconciled.states.items():
        if run_id in reconciled.ends:
            codes[run_id] = reconciled.ends[run_id]["code"]
        elif state is State.STARTED and results.uri is None:  # a store's checkpoints are not here
            codes[run_id] = json.dumps(newest_history(results.checkpoints(run_id)))
    return {run_id: code for run_id, code in codes.items() if code}


def _replaced(study: str, own: Sequence[WantedRun], results: Results) -> Iterator[str]:
    """Say which runs of a study no longer count, because a task of the user's own has changed."""
    before = _wanted_before(study, results)
    checksums = {run.run.task: run.run.data_checksum for run in own}
    now = {tuple(run.row()[name] for name in LABELS): run.run_id for run in own}
    others = [row["run_id"] for labels, row in before.items() if now.get(labels, row["run_id"]) != row["run_id"]]
    number: dict[str, int] = defaultdict(int)
    for row in read_run_rows(results.root, others, ("task", "data_checksum")):
        number[row["task"]] += row["data_checksum"] != checksums.get(row["task"])
    for task, runs in number.items():
        if runs:
            yield (
                f"{task}: {counted(runs, 'recorded run')} of this study had other data or another version of the "
                f"task's code; these are new runs, and `gc --only unwanted` removes the old ones"
            )


def _wanted_before(study: str, results: Results) -> Mapping[tuple[object, ...], Row]:
    if study not in recorded_studies(results.root):
        return {}
    try:
        return {tuple(row[name] for name in LABELS): row for row in read_wanted_rows(results.root, study)}
    except RecordError:  # `run` writes it again
        return {}
