"""Features computed once, where only the output layer is trained (Lu et al. 2021, section 3.9, table 10).

Without dropout, augmentation and new examples at every step, what the output layer reads of an example never changes.
Then `Training` reads it in place of tokens, and each epoch after the first pass is linear classification. A run whose
conditions hold always trains so, however it is started: which path it takes depends on its content and its task alone.

Shape legend: `N` examples, `B` batch, `M` positions read, `D` width.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from lr_sweep.datasets.task import Split, TaskData, TaskShape
from lr_sweep.trainables.models.classifier import Classifier
from lr_sweep.trainables.models.family import Body, Dropout
from lr_sweep.trainables.plain.evaluation import TOKENS_A_BATCH, in_batches
from lr_sweep.trainables.run import Protocol, Run, reads_features

MAX_BYTES = 2**30
"""Most memory for the features of all splits: 350,000 examples at GPT-2's width; a run with more trains without."""


def can_cache(run: Run, data: TaskData) -> bool:
    """Return whether a run's features are computed once."""
    num_examples = sum(map(len, (data.train, data.validation, data.test)))
    fit = 4 * num_examples * data.shape.num_read * run.model.width <= MAX_BYTES
    return reads_features(run.trained, vars(run.protocol)) and data.augment is None and data.draw is None and fit


_kept: list[tuple[str, torch.device, TaskData, TaskData]] = []
"""The newest features, after content without learning rate, device and task: runs of a cell and seed share them."""


def to_features(run: Run, model: Classifier, data: TaskData) -> TaskData:
    """Return the task with features (N, M, D) as its tokens, and have the model read them; its body is let go.

    `model` and `data` are on the run's device.
    """
    content, device = replace(run, learning_rate=0.0).canonical_json(), data.train.labels.device
    if not any(kept[:2] == (content, device) and kept[2] is data for kept in _kept):
        _kept.clear()  # before memory is taken for others
        _kept.append((content, device, data, _computed(model, data)))
    model.input_layer, model.body = nn.Identity(), _NoBody()
    return _kept[0][3]


class _NoBody(Body):
    """Passes on what a body has computed before."""

    def forward(self, embeddings: Tensor, dropout: Dropout | None = None) -> Tensor:
        return embeddings

    def parts(self) -> dict[str, list[nn.Module | nn.Parameter]]:
        return {}

    def draw(self, protocol: Protocol, generator: torch.Generator) -> None:
        pass


def _computed(model: Classifier, data: TaskData) -> TaskData:
    shape = data.shape
    read = TaskShape(
        num_tokens=shape.num_read,
        token_dim=model.output_layer.in_features,
        num_classes=shape.num_classes,
        num_answers=shape.num_answers,
        num_read=shape.num_read,
    )
    train, validation, test = (_features(model, data, split) for split in (data.train, data.validation, data.test))
    return TaskData(shape=read, train=train, validation=validation, test=test)


@torch.no_grad()
def _features(model: Classifier, data: TaskData, split: Split) -> Split:
    found = []
    for batch in in_batches(split, data.shape.num_tokens, TOKENS_A_BATCH):
        states = model.features(data.tokens(batch.inputs), batch.lengths).float()  # (B M, D)
        found.append(states.view(len(batch), data.shape.num_read, -1))
    return Split(inputs=torch.cat(found), labels=split.labels)
