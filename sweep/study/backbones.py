"""The models of a study with their weights: found where they are, fetched or pretrained where they are missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import write_json
from lr_sweep.common.text import Say, duration
from lr_sweep.datasets.files import default_data_dir
from lr_sweep.trainables.pretraining.recipe import (
    VALIDATION_SHARE,
    Recipe,
    TaskRecipe,
    fewest_bytes,
    read_corpus,
)
from lr_sweep.trainables.pretraining.weights import (
    SHIPPED,
    WEIGHTS,
    WeightsError,
    WeightsSource,
    check_made_here,
    check_weights_fit,
    find_weights,
    load_weights,
    made_here_as,
    weights_checksum,
)
from lr_sweep.trainables.run import ModelSize

from .model import (
    FolderWeights,
    HubWeights,
    PretrainedHere,
    ShippedWeights,
    StudyModel,
)
from .study import Study

if TYPE_CHECKING:
    import torch

UNKNOWN_WEIGHTS = "not known yet"
"""Checksum of weights that are not here; ids of runs that start from them are provisional."""

REPORT_EVERY_S = 10.0
"""Seconds between two reports of a pretraining, to the terminal and for `status`."""


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """What is known of the pretrained weights of a model."""

    source: WeightsSource
    checksum: str
    """sha256 of the weights; `UNKNOWN_WEIGHTS` and where from, if they are not here and the study names none."""
    description: str
    here: bool = False


def is_unknown(checksum: str | None) -> bool:
    """Return whether weights, by `Backbone.checksum`, are not known yet."""
    return (checksum or "").startswith(UNKNOWN_WEIGHTS)


def find_backbones(
    study: Study, pretrained_root: Path, data_dir: Path | None = None
) -> dict[str, Backbone]:
    """Look up the weights that a study's cells start from, by model, without fetching or training anything.

    `data_dir`: where text is that a recipe has as `DATA/...`; None: the default one. Raises WeightsError for missing,
    damaged or other weights, all in one message, and UserError for a text that cannot be read.
    """
    backbones, problems = {}, []
    for name, model in _with_weights(study).items():
        try:
            backbones[name] = find_backbone(model, pretrained_root, data_dir)
        except WeightsError as error:
            problems.append(f"model {name}: {error}")
    if problems:
        raise WeightsError("\n".join(problems))
    return backbones


def _with_weights(study: Study) -> dict[str, StudyModel]:
    """Return the models of which some cell starts from pretrained weights, by name."""
    needed = {cell.model for cell in study.cell_list() if study.starts_from_weights(cell.variant)}
    return {name: model for name, model in study.bodies.items() if name in needed}


def find_backbone(model: StudyModel, root: Path, data_dir: Path | None = None) -> Backbone:
    """Look up the weights of a model that has some; arguments and errors as of `find_backbones`."""
    assert model.pretrained is not None
    if isinstance(model.pretrained, PretrainedHere):
        recipe, size = model.pretrained.pretrain, _gpt2_size(model)
        folder = recipe.folder(root, size, _corpus_of(recipe, data_dir))
        source, description = WeightsSource(folder=str(folder)), recipe.description(size)
        if here := (folder / WEIGHTS).is_file():
            check_made_here(folder)
    else:
        source, description = _named_source(model, model.pretrained)
        local = find_weights(source, download=False)
        here, folder = local is not None, local or Path()
    if here:
        check_weights_fit(folder, model.size)
    checksum = weights_checksum(folder) if here else source.sha256 or f"{UNKNOWN_WEIGHTS}: {source}"
    return Backbone(source=source, checksum=checksum, description=description, here=here)


def hub_sources(study: Study) -> dict[str, WeightsSource]:
    """Return the weights that a study takes from the Hugging Face hub, by model."""
    return {
        name: _named_source(model, model.pretrained)[0]
        for name, model in _with_weights(study).items()
        if isinstance(model.pretrained, HubWeights)
    }


def to_pretrain(study: Study, backbones: Mapping[str, Backbone]) -> list[ModelSize]:
    """Return the models of a study that must be pretrained here before its runs."""
    missing = [study.bodies[name] for name, backbone in backbones.items() if not backbone.here]
    return [_gpt2_size(model) for model in missing if isinstance(model.pretrained, PretrainedHere)]


def _gpt2_size(model: StudyModel) -> ModelSize:
    assert isinstance(model.size, ModelSize), "no other is pretrained here"
    return model.size


def _named_source(
    model: StudyModel, pretrained: HubWeights | FolderWeights | ShippedWeights
) -> tuple[WeightsSource, str]:
    family = model.size.family
    if isinstance(pretrained, ShippedWeights):
        return WeightsSource(shipped=pretrained.shipped), made_here_as(SHIPPED / pretrained.shipped)
    if isinstance(pretrained, FolderWeights):
        source = WeightsSource(folder=str(pretrained.folder), family=family)
        return source, f"the weights in {pretrained.folder.name}"
    source = WeightsSource(**dict(pretrained), family=family)
    return source, str(source)


def ensure_backbones(
    study: Study,
    pretrained_root: Path,
    progress_file: Path,
    device: torch.device,
    say: Say,
    data_dir: Path | None = None,
) -> dict[str, Backbone]:
    """Fetch or train missing weights, then look everything up; arguments as of `pretrain_model`, errors of both."""
    for name, backbone in find_backbones(study, pretrained_root, data_dir).items():
        if backbone.here:
            continue
        if isinstance(study.bodies[name].pretrained, PretrainedHere):
            pretrain_model(
                name, study.bodies[name], pretrained_root, progress_file, device, say, data_dir
            )
        else:
            say(f"fetching {backbone.source} for {name}")
            find_weights(backbone.source, download=True)
    backbones = find_backbones(study, pretrained_root, data_dir)
    for backbone in backbones.values():
        if folder := find_weights(backbone.source, download=False):
            # A worker would refuse NaN only once Ray has started.
            load_weights(folder, backbone.source.family)
    return backbones


def pretrain_model(
    name: str,
    model: StudyModel,
    pretrained_root: Path,
    progress_file: Path,
    device: torch.device,
    say: Say,
    data_dir: Path | None = None,
) -> Path:
    """Train a model's weights by its recipe, or resume that, and return their folder.

    `status` reads the progress file, which is removed at the end; `say` is called with lines of text.
    """
    assert isinstance(model.pretrained, PretrainedHere)
    # Imported late: `plan` does not wait for torch.
    from lr_sweep.trainables.pretraining.loop import pretrain

    recipe, size = model.pretrained.pretrain, _gpt2_size(model)
    corpus = _corpus_of(recipe, data_dir)
    folder = recipe.folder(pretrained_root, size, corpus)
    say(f"pretraining {name}: {recipe.description(size)}")
    reporter = Reporter(name, recipe.num_steps, progress_file, say, per=recipe.predicts)
    try:
        facts = pretrain(size, recipe, corpus, folder, device, reporter)
    finally:
        progress_file.unlink(missing_ok=True)
    say(f"pretrained {name} in {facts['duration_s']:.0f} s: {_gain(facts)}")
    return folder


def _gain(facts: Mapping[str, Any]) -> str:
    if "accuracy" in facts:
        return f"{facts['accuracy_before']:.1%} -> {facts['accuracy']:.1%} of test answers right"
    before, after = facts["held_out_bits_per_byte_before"], facts["held_out_bits_per_byte"]
    return f"{before:.2f} -> {after:.2f} bits per held-out byte"


class Reporter:
    """Called after each step of a pretraining: prints its progress, and writes it to a file for `status`."""

    def __init__(
        self,
        model: str,
        num_steps: int,
        path: Path,
        say: Say,
        clock: Callable[[], float] = time.monotonic,
        *,
        per: str = "byte",
    ) -> None:
        """Report on a model's steps; losses are nats `per` what the recipe has it predict."""
        self.model, self.num_steps, self.per = model, num_steps, per
        self.path, self.say, self.clock = path, say, clock
        self.first: tuple[int, float] | None = None
        """The first step of this process, and when it ended."""
        self.reported_at = clock()

    def __call__(self, step: int, loss: float) -> None:
        """Report the step that just ended, and its training loss."""
        now = self.clock()
        if self.first is None:
            self.first = step, now
            if step > 1:
                self.say(f"  resumes after step {step - 1} of {self.num_steps}")
        first, began = self.first
        if step == first or now - self.reported_at < REPORT_EVERY_S:
            return
        self.reported_at = now
        left_s = (now - began) / (step - first) * (self.num_steps - step)
        self.say(
            f"  step {step} of {self.num_steps}, training loss {loss:.2f} nats per {self.per}, {duration(left_s)} left"
        )
        progress = {
            "model": self.model,
            "step": step,
            "num_steps": self.num_steps,
            "time_left_s": left_s,
            "updated_at": time.time(),
        }
        write_json(self.path, progress)


def _corpus_of(recipe: Recipe, data_dir: Path | None) -> bytes:
    """Return the text of a recipe, empty for a task; raises UserError if it cannot be read, or is too short."""
    if isinstance(recipe, TaskRecipe):
        return b""
    try:
        corpus = read_corpus(recipe.files(data_dir or default_data_dir()))
    except OSError as error:
        raise UserError(
            f"cannot read the text to pretrain on: {error.filename}: {error.strerror}. Put a text file there, or name "
            f"yours in a copy of the study (`text: [FILE]`); other text gives other weights, and so other runs"
        ) from error
    fewest = fewest_bytes(recipe.num_tokens)
    if len(corpus) < fewest:
        raise UserError(
            f"the text to pretrain on ({recipe.corpus_name()}) has {len(corpus)} bytes, want at least {fewest}: "
            f"{VALIDATION_SHARE:.0%} is held out, and a sequence has num_tokens = {recipe.num_tokens}. Give more "
            f"text, or lower `num_tokens`."
        )
    return corpus
