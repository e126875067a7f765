"""The models of a study with their weights: found where they are, trained where a study has a recipe for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.errors import UserError
from sweep.results import Results, storage_problems, write_json
from sweep.study import Study
from sweep.study_model import FolderWeights, HubWeights, PretrainedHere, StudyModel
from sweep.text import duration
from trainables.corpus import VALIDATION_SHARE, describe_corpus, fewest_bytes, read_corpus
from trainables.parts import VARIANTS
from trainables.pretrained import (
    WEIGHTS,
    WeightsError,
    WeightsSource,
    check_made_here,
    check_weights_fit,
    find_weights,
    weights_checksum,
)
from trainables.recipe import describe_pretraining, pretrained_folder
from trainables.run import ModelSize

if TYPE_CHECKING:
    import torch

UNKNOWN_WEIGHTS = "not known yet"
"""Stands for the checksum of weights that are not here; ids of runs that start from them are provisional."""

SAY_EVERY_S = 10.0
"""Between lines about a pretraining."""
STATUS_EVERY_S = 2.0
"""Between writings of the file that `status` reads."""

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
        WeightsError: weights are missing, damaged, or not what a model computes; the message has all of them.
        UserError: a text file to pretrain on cannot be read.
    """
    found, problems = {}, []
    for name, model in study.models.items():
        try:
            found[name] = _find(model, _uses_weights(study), pretrained_root)
        except WeightsError as error:
            problems.append(f"model {name}: {error}")
    if problems:
        raise WeightsError("\n".join(problems))
    return found


def hub_sources(study: Study) -> dict[str, WeightsSource]:
    """Return the weights that a study takes from the Hugging Face hub, by model."""
    models = study.models.items() if _uses_weights(study) else ()
    return {name: _named_source(m.pretrained)[0] for name, m in models if isinstance(m.pretrained, HubWeights)}


def to_pretrain(study: Study, backbones: Mapping[str, Backbone]) -> list[ModelSize]:
    """Return the models of a study that are to be pretrained here first."""
    return [
        backbone.size
        for name, backbone in backbones.items()
        if backbone.source and not backbone.here and isinstance(study.models[name].pretrained, PretrainedHere)
    ]


def ensure_backbones(study: Study, results: Results, device: torch.device, say: Say) -> dict[str, Backbone]:
    """Fetch or train what is missing, then look everything up.

    Raises:
        WeightsError: weights are not to be had.
        UserError: as `find_backbones`, or they cannot be written.
    """
    for name, backbone in find_backbones(study, results.pretrained).items():
        source = study.models[name].pretrained
        if backbone.source is None or backbone.here:
            continue
        if isinstance(source, PretrainedHere):
            pretrain_model(name, study.models[name], results, device, say)
        else:
            say(f"fetching {backbone.source} for {name}")
            find_weights(backbone.source, download=True)
    return find_backbones(study, results.pretrained)


def pretrain_model(name: str, model: StudyModel, results: Results, device: torch.device, say: Say) -> Path:
    """Train a model's weights by its recipe, or resume that, and return their folder.

    Raises:
        UserError: the text cannot be read, or the weights cannot be written.
    """
    from trainables.pretrain import pretrain  # imported late: `plan` need not wait for torch

    assert isinstance(model.pretrained, PretrainedHere)
    recipe = model.pretrained.pretrain
    corpus = _corpus(model.pretrained)
    folder = pretrained_folder(results.pretrained, model.size, recipe, corpus)
    say(f"pretraining {name}: {describe_pretraining(model.size, recipe)}")
    reporter = Reporter(name, recipe.num_steps, results.pretraining_progress, say)
    with storage_problems(results.root):
        try:
            facts = pretrain(model.size, recipe, corpus, folder, device, reporter)
        finally:
            results.pretraining_progress.unlink(missing_ok=True)
    before, after = facts["held_out_bits_per_byte_before"], facts["held_out_bits_per_byte"]
    say(f"pretrained {name} in {facts['duration_s']:.0f} s: {before:.2f} -> {after:.2f} bits per held-out byte")
    return folder


class Reporter:
    """Says how far pretraining is, and writes it down for `status`.

    Args:
        model: its name in the study.
        num_steps: of the recipe.
        path: what `status` reads.
        say: called with lines of text.
        clock: returns seconds since some moment.
    """

    def __init__(
        self, model: str, num_steps: int, path: Path, say: Say, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.model, self.num_steps, self.path, self.say, self.clock = model, num_steps, path, say, clock
        self.first: tuple[int, float] | None = None
        """The first step of this process, and when it was done."""
        self.said_at = self.written_at = clock()

    def __call__(self, step: int, loss: float) -> None:
        """Report a step that was just taken."""
        now = self.clock()
        if self.first is None:
            self.first = step, now
            if step > 1:
                self.say(f"  resumes after step {step - 1} of {self.num_steps}")
        left_s = self._left_s(step, now)
        if now - self.said_at >= SAY_EVERY_S:
            self.said_at = now
            left = "" if left_s is None else f", {duration(left_s)} left"
            self.say(f"  step {step} of {self.num_steps}, training loss {loss:.2f} nats per byte{left}")
        if now - self.written_at >= STATUS_EVERY_S:
            self.written_at = now
            progress = {"model": self.model, "step": step, "num_steps": self.num_steps, "time_left_s": left_s}
            write_json(self.path, progress | {"updated_at": time.time()})

    def _left_s(self, step: int, now: float) -> float | None:
        assert self.first is not None
        first, began = self.first
        return (now - began) / (step - first) * (self.num_steps - step) if step > first else None


def _uses_weights(study: Study) -> bool:
    return any(VARIANTS[name].initialisation == "pretrained" for name in study.variants)


def _find(model: StudyModel, wanted: bool, root: Path) -> Backbone:
    if not wanted or model.pretrained is None:
        return Backbone(size=model.size)
    if isinstance(model.pretrained, PretrainedHere):
        recipe = model.pretrained.pretrain
        folder = pretrained_folder(root, model.size, recipe, _corpus(model.pretrained))
        here = (folder / WEIGHTS).is_file()
        source = WeightsSource(folder=str(folder))
        if here:
            check_made_here(folder)
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
