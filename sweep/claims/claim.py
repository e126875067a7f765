"""What a bundle claims: its study, its record and its report, and whether these follow from each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lr_sweep.analysis.record.read import read_wanted_rows
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import ReadFields
from lr_sweep.sweep.inspection.verify import Verification
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.recorder import write_wanted
from lr_sweep.sweep.results.validation import read_options
from lr_sweep.sweep.search.rounds import next_proposals
from lr_sweep.sweep.search.state import StudyState
from lr_sweep.sweep.study.backbones import Backbone
from lr_sweep.sweep.study.file import load_study, study_of
from lr_sweep.sweep.study.model import ShippedWeights
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.study.study import Study

from .bundle import PLANNED, RECORD, RULE, rule_files, unpacked
from .listing import write_files

LABELS = ("run_id", "task", "model", "variant", "learning_rate", "seed", "num_steps", "options")
"""Columns of `WANTED` that follow from a study, besides `fresh`."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A bundle, unpacked into a folder of this process."""

    contents: ReadFields
    """The bundle's files, as bytes by name."""
    results: Results
    """The bundle's record."""
    study: Study
    resources: Resources
    """Resources of the claimed runs."""

    @property
    def name(self) -> str:
        """The study's name."""
        return self.study.study

    def foreign_parts(self) -> Iterator[str]:
        """Yield what a training would use that does not come with this program."""
        if files := self.study.files:
            kind = "command" if files.command else "function"
            yield f"the bundle's own {kind} {files.trainable!r} with the code {sorted(files.code)}"
        for name, body in self.study.bodies.items():
            if not isinstance(body.pretrained, ShippedWeights | None):
                yield f"pretrained weights of {name!r}: {body.pretrained}"


def opened(contents: ReadFields, scratch: Path) -> Claim:
    """Unpack the files of a bundle and read its study, without running anything; raises UserError."""
    files = scratch / "files"
    write_files(files, contents)
    names = [path.stem for path in (files / RECORD).glob("*.yaml")]
    if len(names) != 1:
        raise UserError(f"got {len(names)} studies in {RECORD}, want one: this is no bundle")
    results = unpacked(files / RECORD, names[0], scratch)
    study = load_study(files / RULE / f"{names[0]}.yaml")
    resources = study_of(read_options(results.options(names[0])), files / RULE).resources
    return Claim(contents=contents, results=results, study=study, resources=resources)


def rule_problems(claim: Claim, backbones: Mapping[str, Backbone], data_dir: Path) -> Iterator[str]:
    """Yield where the recorded runs are not those that the study asks for.

    The study's search, winners and fresh seeds are chosen again, from the recorded values. What was
    chosen in the record is replaced by that.
    """
    planned = rule_files(claim.study, backbones, data_dir)[PLANNED]
    if claim.contents.get(PLANNED) != planned:
        yield f"{PLANNED}: the study, its code and its data give other runs"
        return
    claimed_facts, claimed_rows = _facts(claim), _wanted(claim)
    claim.results.proposals(claim.name).unlink(missing_ok=True)
    state = StudyState(claim.study, backbones, claim.results, data_dir)
    while added := next_proposals(state):
        state = state.with_proposals(added)
    write_wanted(claim.results, claim.study, state.wanted)
    if claimed_facts != _facts(claim):
        yield f"{RECORD}/study.json: the study gives other facts"
    yield from _other_runs(claimed_rows, _wanted(claim))


def _facts(claim: Claim) -> bytes:
    return claim.results.facts(claim.name).read_bytes()


def _wanted(claim: Claim) -> dict[str, tuple[Any, ...]]:
    rows = read_wanted_rows(claim.results.root, claim.name)
    return {row["run_id"]: (*(row[name] for name in LABELS), bool(row["fresh"])) for row in rows}


def _other_runs(
    claimed: Mapping[str, tuple[Any, ...]], wanted: Mapping[str, tuple[Any, ...]]
) -> Iterator[str]:
    for run_id in sorted(claimed.keys() | wanted.keys()):
        got, want = claimed.get(run_id), wanted.get(run_id)
        if got != want:
            yield f"{RECORD}/wanted.parquet: got {got}, the study gives {want}"


def record_problems(results: Results, name: str) -> Iterator[str]:
    """Yield what is wrong with an unpacked record: damaged rows, ids that differ from contents, missing runs."""
    for problem in Verification(results).problems():
        yield problem.replace(f"{results.root}/", "record: ").partition(": delete it")[0]
    for row in read_wanted_rows(results.root, name):
        if not results.run(row["run_id"]).exists():
            yield f"record: run {row['run_id']} is wanted and missing"
