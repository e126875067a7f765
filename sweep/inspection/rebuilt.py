"""A recorded run's model, built again from its content, the weights it started from and its checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lr_sweep.common.errors import UserError
from lr_sweep.datasets.task import TaskData
from lr_sweep.sweep.inspection.show import find_run
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import RecordedRun
from lr_sweep.sweep.study.backbones import find_backbone
from lr_sweep.sweep.study.file import load_built_in_study
from lr_sweep.trainables.checkpoint import checkpoints, read_checkpoint
from lr_sweep.trainables.models import size_from
from lr_sweep.trainables.models.classifier import Classifier
from lr_sweep.trainables.models.initialise import build_classifier
from lr_sweep.trainables.pretraining.weights import WEIGHTS, WeightsSource, weights_checksum
from lr_sweep.trainables.run import PROTOCOL_VERSION, Run
from lr_sweep.trainables.worker.session import pretrained_tensors, task_data


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """A run as it was at its best validation accuracy, on the CPU."""

    data: TaskData
    model: Classifier
    step: int
    """The best step of its checkpoint."""
    test_accuracy: float
    """Test accuracy at that step, a fraction."""


def recorded_run(results: Results, given: str) -> tuple[RecordedRun, Run]:
    """Find an ended run by its id or the first letters of it; return it and its content.

    Raises:
        UserError: no such run, it has not ended, or it is of another version of the protocol.
        RecordError: damaged files.
    """
    known = find_run(results, given, ["content"])
    if known.row is None:
        raise UserError(f"run {known.run_id} is {known.status}: want one that has ended; `ls` lists them")
    content: dict[str, Any] = json.loads(known.row["content"])
    if (version := content.get("protocol_version")) != PROTOCOL_VERSION:
        raise UserError(
            f"run {known.run_id} is of protocol version {version}, this program trains by version {PROTOCOL_VERSION}: "
            f"use the program that trained it"
        )
    if "trainable" in content:
        raise UserError(
            f"run {known.run_id} is of the user's own function {content['trainable']}; want a built-in model"
        )
    return known, Run.from_content(content, size_from(content["model"]))


def rebuild(results: Results, known: RecordedRun, run: Run, data_dir: Path) -> Rebuilt:
    """Build a run's model with the tensors of its best step.

    Raises:
        UserError: there is no intact checkpoint with an evaluation, or its pretrained weights are not known.
        WeightsError, DataError: weights or data are missing, or not those of the run.
    """
    found = map(read_checkpoint, checkpoints(results.checkpoints(known.run_id)))
    saved = next((each for each in found if each is not None), None)
    if saved is None or saved[1]["best_step"] is None:
        what = "no intact checkpoint" if saved is None else "no evaluation in its checkpoint"
        raise UserError(
            f"run {known.run_id} has {what} in {results.checkpoints(known.run_id)}. `gc` "
            f"removes checkpoints, and merging from a store brings none: train the run again."
        )
    tensors, progress = saved
    source = _weights_of(results, known, run) if run.weights_checksum else None
    data = task_data(run, data_dir, "cpu")
    model = build_classifier(run, data.shape, pretrained_tensors(run, source, None))
    with torch.no_grad():
        for name, parameter in model.trained_parameters():
            parameter.copy_(tensors[f"best.{name}"])
    (best,) = [each for each in progress["curve"] if each["step"] == progress["best_step"]]
    return Rebuilt(data=data, model=model, step=best["step"], test_accuracy=best["test_accuracy"])


def _weights_of(results: Results, known: RecordedRun, run: Run) -> WeightsSource:
    """Return where a run's pretrained weights are: made here, else where a study that wants the run has them."""
    for path in sorted(results.pretrained.glob(f"[!.]*/{WEIGHTS}")):
        if weights_checksum(path.parent) == run.weights_checksum:
            return WeightsSource(folder=str(path.parent))
    for study in known.budgets:
        model = load_built_in_study(results.options(study)).bodies.get((known.labels or {})["model"])
        if model is not None and model.pretrained is not None:
            return find_backbone(model, results.pretrained).source
    raise UserError(
        f"run {known.run_id} started from weights with sha256 {run.weights_checksum}: they are not in "
        f"{results.pretrained}, and no recorded study that wants the run says where they are. Put them into a folder "
        f"there, with their config.json."
    )
