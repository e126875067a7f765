"""`challenge`: checks what a bundle claims, trains some of its runs again, and compares the curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import torch

from lr_sweep.analysis.record.columns import RUNS
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.read import read_rows, read_wanted, stopped_of
from lr_sweep.analysis.study_summary import Study as Recorded
from lr_sweep.analysis.study_summary import read_summary, summarised
from lr_sweep.common.errors import UserError
from lr_sweep.common.scratch import scratch_folder
from lr_sweep.common.text import Say, counted, failure_line, without_escapes
from lr_sweep.sweep.plan.placement import cpus_here
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.backbones import ensure_backbones
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.study.study import Study

from .bundle import VERSIONS, report_files
from .claim import Claim, opened, record_problems, rule_problems
from .comparison import Comparison, compared, plausibility
from .draw import ALTERED, Stratum, chance, deciding_runs, drawn, strata
from .listing import LIST, Listed, read_list, read_listed, write_files
from .numbers import count_numbers, report_problems

MOST_SHOWN = 20
"""Problems that are shown; more are counted."""

Train = Callable[[Study, Results, Sequence[str]], None]
"""Trains runs of a study by their ids into a results directory."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Options of `challenge`, besides the bundle."""

    num_runs: int
    seed: int
    data_dir: Path
    train: Train
    allow: Callable[[str], None]
    """Raises UserError if the user does not trust code that is named in the text."""
    registered: Path | None = None
    """A list that `plan --register` wrote; None: none is compared."""
    resources: dict[str, float]
    """Resources of a trial that the user gives instead of the claimed ones, by name."""


def challenge(bundle: Path, request: Request, say: Say) -> bool:
    """Challenge a bundle, and return whether its claim holds.

    Passes a line about each problem to `say`, and one sentence at the end. Raises UserError for
    what cannot be read or trained.
    """
    listed = read_listed(bundle)
    for line in (*listed.lines, f"sha256 of {LIST}: {listed.sha256}"):
        say(repr(line)[1:-1])
    if problems := [*listed.problems, *_unregistered(listed, request.registered)]:
        return _rejected(problems, say)
    with scratch_folder("claim-") as scratch:
        try:
            claim = opened(listed.contents, scratch)
            computed = report_files(claim.results, claim.name)
            problems = list(record_problems(claim.results, claim.name))
            problems = problems or list(report_problems(claim.contents, computed))
        except RecordError as error:
            problems = [str(error)]
        if problems:
            return _rejected(problems, say)
        if listed.contents.get(VERSIONS) != computed[VERSIONS]:
            say(
                f"note: other packages than here wrote the report ({VERSIONS}): its figures are not compared"
            )
        if foreign := "; ".join(claim.foreign_parts()):
            request.allow(foreign)
        return _trained_again(claim, request, scratch, count_numbers(computed), say)


def _unregistered(listed: Listed, registered: Path | None) -> Iterator[str]:
    """Yield the lines of a list from before the training that the bundle's list lacks."""
    for line in read_list(registered)[0] if registered else ():
        if line not in listed.lines:
            yield f"registered and not in the bundle: {line!r}"


def _rejected(problems: Sequence[str], say: Say) -> bool:
    for problem in problems[:MOST_SHOWN]:
        say(f"differs: {without_escapes(problem)}")
    say(f"The claim does not hold: {counted(len(problems), 'problem')}. Nothing was trained.")
    return False


def _trained_again(
    claim: Claim, request: Request, scratch: Path, num_numbers: int, say: Say
) -> bool:
    again, data_dir = Results(scratch / "again"), request.data_dir
    again.prepare()
    claim.study.fetch(data_dir)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    progress = again.pretraining_progress
    backbones = ensure_backbones(claim.study, again.pretrained, progress, device, say, data_dir)
    if problems := list(rule_problems(claim, backbones, data_dir)):
        return _rejected(problems, say)

    recorded = read_summary(claim.results.root, claim.name)
    wanted = list(recorded.wanted["run_id"])
    parts = strata(deciding_runs(recorded.summary), wanted, request.num_runs)
    run_ids = drawn(parts, request.seed)
    cpus = min(claim.resources.cpus_per_trial, cpus_here())
    resources = Resources(**(dict(claim.resources) | {"cpus_per_trial": cpus} | request.resources))
    if (chosen := claim.results.proposals(claim.name)).exists():
        write_files(again.study(claim.name), {chosen.name: chosen.read_bytes()})
    changes = {"resources": resources, "stop_early": None}
    request.train(claim.study.model_copy(update=changes), again, run_ids)
    _check_trained(claim.results, again, run_ids)

    budgets = recorded.wanted.set_index("run_id")["num_steps"]
    threads = claim.resources.cpus_per_trial, resources.cpus_per_trial
    found = [
        compared(run_id, int(budgets[run_id]), claim.results, again, threads) for run_id in run_ids
    ]
    start = f"{len(run_ids)} of {len(wanted)} runs trained again (seed {request.seed})"
    holds, text = _outcome(claim, recorded, again, found, parts, say)
    say(f"{start}: {text}; all {num_numbers} numbers follow from the runs.")
    return holds


def _check_trained(claimed: Results, again: Results, run_ids: Sequence[str]) -> None:
    """Raise UserError if a run was not trained here, or failed here alone."""
    for run_id in run_ids:
        before, now = ((read_rows(each.run(run_id), RUNS) or [{}])[0] for each in (claimed, again))
        if not now:
            raise UserError(f"run {run_id} was not trained to its end: give the command again")
        if now["status"] == "failed" != before["status"]:
            raise UserError(f"run {run_id} failed here: {failure_line(now['failure'])}")


def _outcome(
    claim: Claim,
    recorded: Recorded,
    again: Results,
    found: Sequence[Comparison],
    parts: Sequence[Stratum],
    say: Say,
) -> tuple[bool, str]:
    """Return whether the claim holds, and the sentence on the runs that were compared."""
    parted = [each for each in found if each.parted_at is not None]
    for each in parted:
        why = f" ({'; '.join(each.reasons)})" if each.reasons else ""
        say(f"run {each.run_id} parts at step {each.parted_at}{why}")
    if refuted := [each.run_id for each in parted if each.is_refuted]:
        return (
            False,
            f"{len(refuted)} differ, and equal bits were to be expected: {', '.join(refuted)}",
        )
    if not parted:
        found_in = f"this would have found it in {chance(parts):.0%} of draws"
        altered = f"if {ALTERED:.0%} of the runs had been altered, {found_in}"
        return True, f"equal to the bit; {altered}"
    return _outcome_of_values(claim, recorded, again, parted)


def _outcome_of_values(
    claim: Claim, recorded: Recorded, again: Results, parted: Sequence[Comparison]
) -> tuple[bool, str]:
    run_ids = [each.run_id for each in parted]
    tested = plausibility(recorded.summary, _values(claim, again, run_ids), run_ids)
    where = f"{len(parted)} are not equal to the bit, as kind of device, versions or threads differ"
    if tested.is_refuted:
        return (
            False,
            f"{where}; the claimed values are too good for further seeds (p {tested.p:.2g})",
        )
    amount = recorded.summary.metric.amount_text(tested.findable, tested.findable)
    limit = f"a mean gain of {amount} would have been found (p {tested.p:.2g})"
    if tested.p != tested.p:
        limit = "the noise between seeds is not known, so nothing was tested"
    return True, f"{where}; the claimed values are plausible as further seeds: {limit}"


def _values(claim: Claim, again: Results, run_ids: Sequence[str]) -> pd.Series[float]:
    """Return the test values of runs that were trained again, by id."""
    wanted = read_wanted(claim.results.root, claim.name)
    rows = wanted[wanted["run_id"].isin(run_ids)].assign(fresh=False)
    info = replace(read_summary(claim.results.root, claim.name).info, fresh=None)
    stopped = stopped_of(claim.results.root, claim.name)
    runs = summarised(again.root, info, rows, stopped).summary.runs
    return runs.set_index("run_id")["test"]
