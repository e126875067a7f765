"""`attention`: what a trained GPT-2 attends to, as an array and a figure (Lu et al. 2021, section 3.5, figures 3 to 5).

Shape legend: `N` examples, `H` heads, `T` tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from lr_sweep.analysis.report.figures import save
from lr_sweep.analysis.report.model_figures import attention_figure
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import whole_file
from lr_sweep.datasets.task import Split
from lr_sweep.sweep.inspection.rebuild import Rebuilt, rebuild, recorded_run
from lr_sweep.sweep.results.directory import Results
from lr_sweep.trainables.backbones.gpt2 import GPT2
from lr_sweep.trainables.run import gpt2_size

MOST_BYTES = 4_000_000_000
"""Of the array: it is held in memory."""


def write_attention(
    results: Results, given: str, data_dir: Path, folder: Path, *, num_examples: int = 1, layer: int = 0
) -> list[Path]:
    """Write a layer's attention weights on a run's first test examples as .npz, .png and .svg; return the paths.

    The array file has `attention` (N, H, T, T) float32, whose row t has what token t attends to and sums to 1, and the
    examples: `inputs`, `labels`, and `lengths` where the task has them. The figure is of the first example.

    Raises:
        UserError: no GPT-2, no such layer, too many examples; and all that `recorded_run` and `rebuild` raise.
    """
    known, run = recorded_run(results, given)
    if run.model.family != "gpt2":
        raise UserError(f"run {known.run_id} is of the family {run.model.family}; attention is drawn of gpt2 alone")
    if not layer < run.model.layers:
        raise UserError(f"--layer: got {layer}, want 0 to {run.model.layers - 1}: the layers of run {known.run_id}")
    rebuilt = rebuild(results, known, run, data_dir)
    split = rebuilt.data.test[:num_examples]
    most = MOST_BYTES // (4 * gpt2_size(run).heads * rebuilt.data.shape.num_tokens**2)
    if len(split) > most:
        raise UserError(f"--examples: got {len(split)}, want at most {most}: more take over {MOST_BYTES / 1e9:g} GB")
    weights = attention_of(rebuilt, split, layer)  # (N, H, T, T)
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"attention-{known.run_id}-layer{layer}"
    arrays: dict[str, Any] = {"attention": weights, "inputs": split.inputs.numpy(), "labels": split.labels.numpy()}
    arrays |= {} if split.lengths is None else {"lengths": split.lengths.numpy()}
    with whole_file(stem.with_suffix(".npz")) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)
    title = f"Attention in layer {layer}: {rebuilt.title}"
    caption = (
        f"Run {known.run_id} at step {rebuilt.step}, where validation is best; test accuracy there "
        f"{rebuilt.test_accuracy:.1%}. The first test example. Each row shows what a token attends to: itself and "
        f"tokens before it; a row sums to 1. The first panel is the mean over heads."
    )
    return [stem.with_suffix(".npz"), *save(attention_figure(weights[0], title, caption), stem)]


@torch.no_grad()
def attention_of(rebuilt: Rebuilt, split: Split, layer: int) -> np.ndarray:
    """Return a layer's weights (N, H, T, T) in evaluation mode and fp32, an example at a time."""
    model, body = rebuilt.model, rebuilt.model.body
    assert isinstance(body, GPT2)
    tokens = rebuilt.data.tokens(split.inputs)
    each = [body.attention_weights(model.input_layer(one), layer) for one in tokens.split(1)]  # (1, H, T, T)
    return torch.cat(each).numpy()
