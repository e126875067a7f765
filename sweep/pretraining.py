"""The models of a study with their weights: found where they are, trained where a study has a recipe for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.errors import UserError
from sweep.results import storage_problems
from sweep.study import Study
from sweep.study_model import FolderWeights, HubWeights, PretrainedHere, StudyModel
from trainables.corpus import VALIDATION_SHARE, describe_corpus, fewest_bytes, read_corpus
from trainables.parts import VARIANTS
from trainables.pretrained import WeightsSource, check_weights_fit, find_weights, weights_checksum
from trainables.recipe import describe_pretraining, pretrained_folder
from trainables.run import ModelSize

if TYPE_CHECKING:
    import torch

UNKNOWN_WEIGHTS = "not known yet"
"""Stands for the checksum of weights that are not here; ids of runs that start from them are provisional."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """A model of a study, with its weights as far as they are known."""

    size: ModelSize
    source: WeightsSource | None = None
    """Where the weights are or will be; None: the study wants none."""
    checksum: str | None = None
    """sha256 of the weights, `UNKNOWN_WEIGHTS` if they are not here and not pinned; None: the study wants none."""
    description: str | None = None
    """What tables call the weights."""
    here: bool = False
    """Whether the weights are on this machine."""


def find_backbones(study: Study, pretrained_root: Path) -> dict[str, Backbone]:
    """Look up every model's weights without fetching or training anything.

    Raises:
        WeightsError: a named folder has none, has not the wanted bytes, or another model's.
        UserError: a text file to pretrain on cannot be read.
    """
    return {name: _find(model, _uses_weights(study), pretrained_root) for name, model in study.models.items()}


def hub_sources(study: Study) -> dict[str, WeightsSource]:
    """Return the weights that a study takes from the Hugging Face hub, by model."""
    models = study.models.items() if _uses_weights(study) else ()
    return {name: _named_source(m.pretrained)[0] for name, m in models if isinstance(m.pretrained, HubWeights)}


def ensure_backbones(study: Study, pretrained_root: Path, device: torch.device, say: Say) -> dict[str, Backbone]:
    """Fetch or train what is missing, then look everything up.

    Raises:
        WeightsError: weights are not to be had.
        UserError: as `find_backbones`, or they cannot be written.
    """
    for name, backbone in find_backbones(study, pretrained_root).items():
        source = study.models[name].pretrained
        if backbone.source is None or backbone.here:
            continue
        if isinstance(source, PretrainedHere):
            pretrain_model(name, study.models[name], pretrained_root, device, say)
        else:
            say(f"fetching {backbone.source} for {name}")
            find_weights(backbone.source, download=True)
    return find_backbones(study, pretrained_root)


def pretrain_model(name: str, model: StudyModel, root: Path, device: torch.device, say: Say) -> Path:
    """Train a model's weights by its recipe and return their folder.

    Raises:
        UserError: the text cannot be read, or the weights cannot be written.
    """
    from trainables.pretrain import pretrain  # imported late: `plan` need not wait for torch

    assert isinstance(model.pretrained, PretrainedHere)
    recipe = model.pretrained.pretrain
    corpus = _corpus(model.pretrained)
    folder = pretrained_folder(root, model.size, recipe, corpus)
    say(f"pretraining {name}: {describe_pretraining(model.size, recipe)}")
    reporter = _Reporter(recipe.num_steps, say)
    with storage_problems(root):
        facts = pretrain(model.size, recipe, corpus, folder, device, reporter)
    before, after = facts["held_out_bits_per_byte_before"], facts["held_out_bits_per_byte"]
    say(f"pretrained {name} in {facts['duration_s']:.0f} s: {before:.2f} -> {after:.2f} bits per held-out byte")
    return folder


class _Reporter:
    """Says how far pretraining is, every few seconds."""

    def __init__(self, num_steps: int, say: Say, every_s: float = 10.0) -> None:
        self.num_steps, self.say, self.every_s, self.last = num_steps, say, every_s, time.monotonic()

    def __call__(self, step: int, loss: float) -> None:
        if time.monotonic() - self.last >= self.every_s:
            self.last = time.monotonic()
            self.say(f"  step {step} of {self.num_steps}, training loss {loss:.2f} nats per byte")


def _uses_weights(study: Study) -> bool:
    return any(VARIANTS[name].initialisation == "pretrained" for name in study.variants)


def _find(model: StudyModel, wanted: bool, root: Path) -> Backbone:
    if not wanted or model.pretrained is None:
        return Backbone(size=model.size)
    if isinstance(model.pretrained, PretrainedHere):
        recipe = model.pretrained.pretrain
        folder = pretrained_folder(root, model.size, recipe, _corpus(model.pretrained))
        here = (folder / "model.safetensors").is_file()
        source = WeightsSource(folder=str(folder))
        description = describe_pretraining(model.size, recipe)
    else:
        source, description = _named_source(model.pretrained)
        found = find_weights(source, download=False)
        here, folder = found is not None, found or Path()
    if here:
        check_weights_fit(folder, model.size)
    checksum = weights_checksum(folder) if here else source.sha256 or UNKNOWN_WEIGHTS
    return Backbone(size=model.size, source=source, checksum=checksum, description=description, here=here)


def _named_source(pretrained: HubWeights | FolderWeights) -> tuple[WeightsSource, str]:
    if isinstance(pretrained, FolderWeights):
        return WeightsSource(folder=str(pretrained.folder)), f"the weights in {pretrained.folder.name}"
    source = WeightsSource(hub=pretrained.hub, revision=pretrained.revision, sha256=pretrained.sha256)
    return source, str(source)


def _corpus(pretrained: PretrainedHere) -> bytes:
    recipe = pretrained.pretrain
    try:
        corpus = read_corpus(recipe.text)
    except OSError as error:
        raise UserError(f"cannot read the text to pretrain on: {error.filename}: {error.strerror}") from error
    fewest = fewest_bytes(recipe.num_tokens)
    if len(corpus) < fewest:
        got = f"the text to pretrain on ({describe_corpus(recipe.text)}) has {len(corpus)} bytes"
        raise UserError(
            f"{got}, want at least {fewest}: {VALIDATION_SHARE:.0%} is held out, and a sequence has num_tokens = "
            f"{recipe.num_tokens}. Give more text, or lower `num_tokens`."
        )
    return corpus
