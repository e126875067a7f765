"""A study of runs that take milliseconds, its second training in this process, and its bundle."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from unittest import mock

from lr_sweep.analysis.record.columns import Columns, table
from lr_sweep.analysis.record.parquet import parquet_bytes
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.common.files import Fields, make_folder, remove_tree
from lr_sweep.common.scratch import scratch_folder
from lr_sweep.common.text import Say
from lr_sweep.datasets.files import default_data_dir
from lr_sweep.sweep.claims.bundle import RECORD, REPORT, RULE, bundle_files, computed_state, write_bundle
from lr_sweep.sweep.claims.challenge import challenge
from lr_sweep.sweep.claims.listing import LIST, lines_of, read_files, write_files
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.recorder import Recorder, write_wanted
from lr_sweep.sweep.search.rounds import next_proposals
from lr_sweep.sweep.search.state import StudyState
from lr_sweep.sweep.study.backbones import find_backbones
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.study import Study
from lr_sweep.sweep.tune.run_study import Outcome
from lr_sweep.sweep.tune.work import Options
from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.tiny_study import cohort_here, events_of

BODY = """
torch.manual_seed(run.seed)
best = {"a": 0.8, "b": 0.7, "c": 0.6}[run.variant]
level = best - 0.1 * abs(torch.tensor(run.learning_rate).log10().item() + 2) + 0.02 * torch.randn(()).item()
for step in session.steps():
    if session.due:
        reached = level * step / (step + 2)
        session.report(validation=reached + 0.01 * torch.randn(()).item(), test=reached)
"""
"""Reports numbers that depend on variant, rate and seed; `a` is the best variant, at 1e-2."""
LINES = {
    "variants": "[a, b, c]",
    "learning_rates": "[1e-4, 1e-3, 1e-2, 1e-1]",
    "seeds": "5",
    "protocol": "{evaluate_every: 2}",
    "num_steps": "6",
}


def train_here(study: Study, results: Results, run_ids: Collection[str] | None = None) -> None:
    """Train runs of a study without pretrained weights in this process; None: all, until it proposes no further."""
    state = StudyState(study, {}, results, results.root)
    while True:
        chosen = [run for run in state.wanted if run_ids is None or run.run_id in run_ids]
        recorder = Recorder(results, chosen, devices_per_trial=1.0, files=study.files)
        for run in (run for run in chosen if not results.run(run.run_id).exists()):
            for event in events_of(cohort_here([run], results)):
                recorder.event(event)
        if run_ids is not None or not (added := next_proposals(state.again(retry_failed=False))):
            break
        state = state.again(retry_failed=False).with_proposals(added)
    write_wanted(results, study, state.wanted)


class SecondTraining:
    """Trains the runs of a study once more in a folder, and gives a challenge those that it asks for, as `run` does."""

    def __init__(self, folder: Path) -> None:
        self.results = Results(folder / "second")
        self.asked: Collection[str] = ()

    def __call__(self, study: Study, options: Options, say: Say) -> Outcome:
        """Give a results directory these runs; each is trained once."""
        self.asked, again = options.only["run"], options.results
        self.results.prepare()
        if (proposals := again.proposals(study.study)).exists():
            make_folder(self.results.study(study.study))
            shutil.copy(proposals, self.results.study(study.study))
        train_here(study, self.results, self.asked)
        for path_of in ("curve", "run"):
            for run_id in self.asked:
                shutil.copy(getattr(self.results, path_of)(run_id), getattr(again, path_of)(run_id))
        write_wanted(again, study, StudyState(study, {}, again, again.root).wanted)
        return Outcome(report=None, trained=len(self.asked), failed=0, stopped=False)


def challenged(bundle: Path, second: SecondTraining, **changes: Any) -> tuple[bool, str]:
    """Challenge a bundle by a second training, and return whether it holds, with all lines."""
    said: list[str] = []
    given = {"num_runs": 15, "seed": 0, "allow": lambda: None}
    with mock.patch("lr_sweep.sweep.claims.challenge.run_study", second):
        holds = challenge(bundle, say=said.append, **{**given, **changes})
    return holds, "\n".join(said)


def list_again(bundle: Path) -> None:
    """Write the list of a bundle's files as they are now."""
    lines = lines_of(read_files(bundle)[1])
    (bundle / LIST).write_text("".join(f"{line}\n" for line in lines))


def report_again(bundle: Path) -> None:
    """Make the report and the list of a bundle from its runs as they are now, whose weights come with the program."""
    (_, contents), (rule,) = read_files(bundle), (bundle / RULE).iterdir()
    study = load_study(rule / f"{rule.name}.yaml")
    with scratch_folder("forged-") as scratch:
        backbones = find_backbones(study, scratch)
        state = computed_state(study, backbones, default_data_dir(), contents, scratch / "files")
        remove_tree(bundle / REPORT)
        write_files(bundle, bundle_files(state))
    list_again(bundle)


def change_rows(bundle: Path, stem: str, columns: Columns, change: Callable[[list[Fields]], object]) -> None:
    """Change the rows of each file of a folder of the record."""
    for path in sorted((bundle / RECORD / stem).iterdir()):
        rows = read_rows(path, columns) or []
        change(rows)
        path.write_bytes(parquet_bytes(table(rows, columns)))


def write_fast_study(folder: Path, **changes: str) -> Path:
    """Write a study of 60 runs and its function."""
    folder.mkdir(parents=True, exist_ok=True)
    return write_function(folder, BODY, **(LINES | changes))


def make_bundle(folder: Path, **changes: str) -> Path:
    """Train such a study in a folder, and return its bundle."""
    study = load_study(write_fast_study(folder / "code", **changes))
    results = Results(folder / "results")
    results.prepare()
    train_here(study, results)
    write_bundle(results, study.study, folder / "code", folder / "bundle")
    return folder / "bundle"
