"""Losses of a batch, loss and accuracy over a whole split, and features computed once.

Where only the output layer is trained (Lu et al. 2021, section 3.9, table 10) without dropout, augmentation and new
examples at every step, what it reads of an example never changes. Such a run always reads these features in place of
tokens: which path it takes depends on its content and its task alone.

Shape legend: `R` runs, `N` examples, `B` batch, `M` positions read, `D` width, `Q` answers an example, `C` classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lr_sweep.datasets.task import Split, TaskData
from lr_sweep.trainables.engine import Progress
from lr_sweep.trainables.models.classifier import Classifier
from lr_sweep.trainables.models.family import Body, Dropout, Parts
from lr_sweep.trainables.numerics import widened
from lr_sweep.trainables.run import Protocol, Run, reads_features

TOKENS_A_BATCH = 2**14
"""Evaluation batches hold so many tokens: enough to fill a core, small enough for 2000-token examples on a GPU."""


def evaluated_splits(data: TaskData, protocol: Protocol) -> dict[str, Split]:
    """Return what an evaluation is of: of `test` where `wants_test` says so, which comes last."""
    train = data.train[: protocol.train_examples_evaluated]
    return {"train": train, "validation": data.validation, "test": data.test}


def in_batches(split: Split, num_tokens: int, tokens_a_batch: int) -> Iterator[Split]:
    """Yield a split in batches of about so many tokens, where an example has `num_tokens`."""
    examples_a_batch = tokens_a_batch // num_tokens
    size = max(1, examples_a_batch)
    for start in range(0, len(split), size):
        yield split[start : start + size]


def wants_test(
    protocol: Protocol, progress: Progress, scores: Mapping[str, tuple[float, float]]
) -> bool:
    """Return whether the test split is evaluated, too, where the others have these losses and accuracies."""
    if protocol.test_evaluated == "always":
        return True
    _, accuracy = scores["validation"]
    return progress.improves(accuracy)


def named_scores(scores: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return loss and accuracy of each split by name; the curve's train loss is the one trained on, so without it."""
    named: dict[str, float] = {}
    for split, (loss, accuracy) in scores.items():
        named[split] = accuracy
        if split != "train":
            named[f"{split}_loss"] = loss
    return named


def mean_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats over all answers, a scalar."""
    answers = widened(logits).flatten(0, -2)  # (B, C) or (B Q, C)
    return F.cross_entropy(answers, labels.flatten())


def example_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each example's mean cross-entropy in nats, (R, B); of labels (R, B) or (R, B, Q)."""
    answers = widened(logits).flatten(0, -2)  # (R B, C) or (R B Q, C)
    flat = F.cross_entropy(answers, labels.flatten(), reduction="none")
    losses = flat.view(labels.shape)
    return losses if labels.dim() == 2 else losses.mean(-1)


@torch.no_grad()
def evaluate(model: nn.Module, data: TaskData, split: Split) -> tuple[float, float]:
    """Return mean cross-entropy in nats and accuracy as a fraction over all answers, in evaluation mode."""
    device = split.labels.device
    num_answers = split.labels.numel()
    loss_sum = torch.zeros((), dtype=torch.float64, device=device)
    num_correct = torch.zeros((), dtype=torch.int64, device=device)
    for batch in in_batches(split, data.shape.num_tokens, TOKENS_A_BATCH):
        logits = model(data.tokens(batch.inputs))
        answers = widened(logits).flatten(0, -2)
        labels = batch.labels.flatten()
        batch_loss = F.cross_entropy(answers, labels, reduction="sum")
        loss_sum += batch_loss.double()
        num_correct += (answers.argmax(-1) == labels).sum()
    return loss_sum.item() / num_answers, num_correct.item() / num_answers


MAX_FEATURE_BYTES = 2**30
"""Bytes for the features of all splits, at most: 350,000 examples at GPT-2's width; a run with more trains without."""


def can_cache(run: Run, data: TaskData) -> bool:
    """Return whether a run's features are computed once."""
    if not reads_features(run):
        return False
    if data.augment is not None or data.draw is not None:
        return False
    num_examples = len(data.train) + len(data.validation) + len(data.test)
    bytes_an_example = 4 * data.shape.num_read * run.model.width
    return num_examples * bytes_an_example <= MAX_FEATURE_BYTES


_kept: list[tuple[str, torch.device, TaskData, TaskData]] = []
"""The newest features, after content without learning rate, device and task: runs of a cell and seed share them."""


def to_features(run: Run, model: Classifier, data: TaskData) -> TaskData:
    """Return the task with features (N, M, D) as its tokens, and have the model read them; its body is let go."""
    content = replace(run, learning_rate=0.0).canonical_json()
    key = content, data.train.labels.device
    if not any(kept[:2] == key and kept[2] is data for kept in _kept):
        _kept.clear()  # before memory is taken for others
        _kept.append((*key, data, _computed(model, data)))
    model.input_layer = nn.Identity()
    model.body = _NoBody()
    *_, features = _kept[0]
    return features


class _NoBody(Body):
    """Passes on what a body has computed before."""

    def forward(self, embeddings: Tensor, dropout: Dropout | None = None) -> Tensor:
        return embeddings

    def parts(self) -> Parts:
        return {}

    def draw(self, protocol: Protocol, generator: torch.Generator) -> None:
        pass


def _computed(model: Classifier, data: TaskData) -> TaskData:
    shape = data.shape
    width = model.output_layer.in_features
    return TaskData(
        shape=replace(shape, num_tokens=shape.num_read, num_token_ids=None, token_dim=width),
        train=_features(model, data, data.train),
        validation=_features(model, data, data.validation),
        test=_features(model, data, data.test),
    )


@torch.no_grad()
def _features(model: Classifier, data: TaskData, split: Split) -> Split:
    features = []
    for batch in in_batches(split, data.shape.num_tokens, TOKENS_A_BATCH):
        states = model.features(data.tokens(batch.inputs))  # (B M, D)
        rows = widened(states).view(len(batch), data.shape.num_read, -1)
        features.append(rows)
    return Split(inputs=torch.cat(features), labels=split.labels)
