"""What the simulated fleet trains: a study of 10,000 runs of GPT-2, its cohorts, and what they cost as trials."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lr_sweep.benchmarks.fleet import Trial
from lr_sweep.sweep.plan.cost import COPIES_A_CHECKPOINT
from lr_sweep.sweep.study.backbones import find_backbones
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.runs import WantedRun, wanted_runs
from lr_sweep.trainables.memory import trained_parameters
from lr_sweep.trainables.parts import VARIANTS

STUDY = """\
study: fleet
title: Rothermel et al. 2021, table 1, with more learning rates and seeds
tasks:
  listops: {num_steps: 300_000, source: generated}
  mnist: {num_steps: 400_000}
  cifar10: {num_steps: 400_000}
  cifar10-lra: {num_steps: 300_000}
models: {gpt2: {}}
variants: [frozen-random, frozen-pretrained, unfrozen-random, unfrozen-pretrained]
learning_rates: {low: 1e-6, high: 1e-2, per_decade: 6}
seeds: 25
protocol: {batch_size: 8, evaluate_every: 2000, precision: bf16}
resources: {gpus_per_trial: 1}
"""
"""4 tasks x 4 variants x 25 learning rates x 25 seeds."""
FLOORS_FROM = "floors computed for one H200, batch 8, bf16: ASSUMED, not measured"
FLOORS = {"frozen": {"64": 0.34, "1024": 6.1}, "unfrozen": {"64": 1.5, "1024": 8.9}}
"""Milliseconds a run-step by number of tokens."""
CHECKPOINT_EVERY_S = 60.0
"""`run --checkpoint-every-s` by default; one is written at every evaluation, too."""
REPORT_EVERY_S = 2.0
"""As trainables/ray_trainable.py has it, which needs Ray to be imported."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What turns cohorts into simulated trials."""

    run_step_ms: dict[str, dict[str, float]]
    """By `frozen` or `unfrozen`, then by number of tokens; straight lines between and beyond."""
    storage_gb_per_s: float
    """At which one GPU's process writes checkpoints."""
    result_s: float
    """The driver's time for a result of a trial."""
    evaluation_s: float
    """The driver's time for an evaluation of a run."""

    def run_step_s(self, run: WantedRun) -> float:
        """Return the seconds of one step of one run, one of many that train together."""
        frozen = run.run.trained == VARIANTS["frozen-random"].trained
        by_tokens = self.run_step_ms["frozen" if frozen else "unfrozen"]
        (low, low_ms), (high, high_ms) = sorted((int(tokens), ms) for tokens, ms in by_tokens.items())
        slope = (high_ms - low_ms) / (high - low)
        return (low_ms + slope * (run.shape.num_tokens - low)) / 1000

    def trial(self, cohort: Sequence[WantedRun], every_s: float | None) -> Trial:
        """Return what a cohort is on the fleet; `every_s` None: checkpoints when `run` writes them."""
        first, step_s = cohort[0], sum(self.run_step_s(run) for run in cohort)
        evaluation_every_s = first.run.protocol.evaluate_every * step_s
        num_results, num_evaluations = 1 / REPORT_EVERY_S + 1 / evaluation_every_s, len(cohort) / evaluation_every_s
        return Trial(
            work_s=first.num_steps * step_s,
            checkpoint_every_s=every_s or min(evaluation_every_s, CHECKPOINT_EVERY_S),
            checkpoint_s=checkpoint_gb(cohort) / self.storage_gb_per_s,
            driver_load=self.result_s * num_results + self.evaluation_s * num_evaluations,
        )


def checkpoint_gb(cohort: Sequence[WantedRun]) -> float:
    """Return the size of one checkpoint of each run of a cohort."""
    numbers = sum(COPIES_A_CHECKPOINT * trained_parameters(run.run, run.shape) for run in cohort)
    return 4 * numbers / 1e9


def study_runs() -> list[WantedRun]:
    """Write the study's grid out."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fleet.yaml"
        file.write_text(STUDY)
        study = load_study(file)
        return wanted_runs(study, find_backbones(study, Path(folder)), Path(folder))
