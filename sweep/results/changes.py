"""Which code and data trained a run; `plan` and `run` name recorded runs whose code or data has changed since."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from lr_sweep.analysis.record.code_versions import files_text, other_versions
from lr_sweep.analysis.record.read import read_run_rows
from lr_sweep.common.source_code import source_versions, version_here
from lr_sweep.common.text import counted
from lr_sweep.datasets import SHIPPED, TASKS
from lr_sweep.datasets.checksum import task_sources
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.reconcile import Reconciled
from lr_sweep.sweep.results.replaced import no_longer_wanted
from lr_sweep.sweep.results.run_state import State
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.backbones import FAMILIES
from lr_sweep.trainables.checkpoint import newest_history
from lr_sweep.trainables.run import engine_for, engine_of

ENGINES = {
    "stacked": "lr_sweep.trainables.stacked.engine",
    "plain": "lr_sweep.trainables.training",
    "own": "lr_sweep.trainables.own.engine",
}
"""The module that each engine is in, by name: importing it would import torch, which `plan` does without."""


def code_of(task: str, modules: Collection[str]) -> dict[str, str]:
    """Return the versions of the files that a task's data and the numbers of these modules come from, by path."""
    engine_code, task_code = source_versions(sorted(modules)), task_sources(TASKS[task])
    return engine_code | {file: version for file, version in task_code.items() if version_here(file) == version}


def code_of_tasks(study: Study, examples: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return for each task the versions of what its runs' numbers come from; `examples` is from `own_examples`."""
    if study.files is not None:  # their own code is in their ids
        return dict.fromkeys(study.tasks, source_versions([ENGINES["own"]]))
    sizes = [model.size for model in study.bodies.values()]
    modules = {ENGINES[engine_for(size, study.resources.engine)] for size in sizes}
    modules |= {FAMILIES[size.family] for size in sizes}  # imported by name
    return {
        task: code_of(task, modules)
        | {name: version for name, version in examples.items() if name == _examples_of(task)}
        for task in study.tasks
    }


def own_examples(study: Study, data_dir: Path) -> dict[str, str]:
    """Load the study's tasks that are not shipped, and return the versions of their examples by name.

    So mismatches between `load` and `shape` end a `run` before it starts (DataError, see `load_checked`), and data that
    changed under the same `checksum` is noticed.
    """
    from lr_sweep.datasets.loaded import examples_version, load_checked  # imported late: `plan` loads nothing

    own = {name: task.options for name, task in study.data_sets.items() if name not in SHIPPED}
    loaded = {name: load_checked(name, TASKS[name], options, data_dir) for name, options in own.items()}
    return {_examples_of(name): examples_version(data) for name, data in loaded.items()}


def _examples_of(task: str) -> str:
    return f"the examples of {task}"


def version_now(examples: Mapping[str, str], name: str) -> str | None:
    """Return the version of a file of the checkout, or of a task's examples, by its name; None: not known."""
    return examples.get(name) or version_here(name)


def change_lines(
    study: str,
    wanted: Sequence[WantedRun],
    reconciled: Reconciled,
    results: Results,
    examples: Mapping[str, str] | None = None,
) -> list[str]:
    """Return lines that name recorded runs of a study trained by other code or data than what is here; mostly none.

    Call this before `wanted.parquet` is written again. `examples` are from `own_examples`; None: data was not loaded.
    """
    replaced = _replaced_own_lines if any(engine_of(run.run, "plain") == "own" for run in wanted) else _replaced_lines
    return [*_other_code_lines(reconciled, results, examples or {}), *replaced(study, wanted, results)]


def _other_code_lines(reconciled: Reconciled, results: Results, examples: Mapping[str, str]) -> Iterator[str]:
    """Name runs with the same id that were trained by another version of some files."""
    now = partial(version_now, examples)
    files_of = cache(lambda code: tuple(sorted(other_versions(code, now))))  # most runs have the same code
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for run_id, code in _codes(reconciled, results):
        if files := files_of(code):
            found[files].append(run_id)
    to_train = {run.run_id for run in reconciled.to_train}
    for files, run_ids in found.items():
        ends = [reconciled.ends[run_id] for run_id in run_ids if run_id in reconciled.ends]
        commits = sorted({end["git_commit"][:7] for end in ends if end["git_commit"]})
        at = f" (commit {', '.join(commits)})" if commits else ""
        were = "run was" if len(run_ids) == 1 else "runs were"
        yield f"{len(run_ids)} recorded {were} trained by another version of {files_text(files)}{at}"
        if resuming := to_train.intersection(run_ids):
            yield f"{len(resuming)} of them would resume with this version, so their curves would be of two versions"
        yield "if the change affects numbers, give --results a new directory; otherwise do nothing"


def _codes(reconciled: Reconciled, results: Results) -> Iterator[tuple[str, str]]:
    """Yield run ids with what is known of the code that trained them: from the row, else from the newest checkpoint."""
    for run_id, state in reconciled.states.items():
        if run_id in reconciled.ends:
            if code := reconciled.ends[run_id]["code"]:
                yield run_id, code
        elif state is State.STARTED and results.uri is None:  # a store's checkpoints are not here
            yield run_id, json.dumps(newest_history(results.checkpoints(run_id)))


def _replaced_lines(study: str, wanted: Sequence[WantedRun], results: Results) -> Iterator[str]:
    """Say how many runs of a study no longer count, because a task of the user's own has changed."""
    checksums = {run.run.task: run.run.data_checksum for run in wanted if run.run.task not in SHIPPED}
    if not checksums:
        return
    others = [row["run_id"] for row in no_longer_wanted(study, wanted, results) if row["task"] in checksums]
    rows = read_run_rows(results.root, others, ("task", "data_checksum"))
    number = Counter(row["task"] for row in rows if row["data_checksum"] != checksums[row["task"]])
    for task, runs in number.items():
        yield (
            f"{task}: {counted(runs, 'recorded run')} of this study had other data or another version of the "
            f"task's code; these are new runs, and `gc --only unwanted` removes the old ones"
        )


def _replaced_own_lines(study: str, wanted: Sequence[WantedRun], results: Results) -> Iterator[str]:
    """Say how many runs no longer count because the user's own code or data has changed, and name the files."""
    now = wanted[0].run.content()
    others = [row["run_id"] for row in no_longer_wanted(study, wanted, results)]
    found: Counter[str] = Counter()
    for row in read_run_rows(results.root, others, ("content",)):
        content = json.loads(row["content"])
        files = [name for kind in ("code", "data") for name in _differing(content.get(kind, {}), now[kind])]
        if files:
            found[", ".join(files)] += 1
    for names, number in found.items():
        were = "run was" if number == 1 else "runs were"
        yield (
            f"{number} recorded {were} trained by another version of {names}; with the one that is here they are new "
            f"runs, and `gc --only unwanted` removes the old ones"
        )


def _differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the names of files that were added, changed or removed."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
