"""Commands that look into models, as those of `sweep.cli.study_commands`; all need torch."""

from __future__ import annotations

from argparse import Namespace

from lr_sweep.sweep.cli.study_commands import data_folder
from lr_sweep.sweep.store.results import directory_at, results_here


def attention(chosen: Namespace) -> int:
    """Write what a run attends to."""
    from lr_sweep.sweep.inspection.attention import write_attention

    results = directory_at(chosen.results, "attention")
    paths = write_attention(
        results, chosen.run, data_folder(chosen), chosen.out, num_examples=chosen.examples, layer=chosen.layer
    )
    print("\n".join(map(str, paths)))
    return 0


def deviations(chosen: Namespace) -> int:
    """Write standard deviations of pretrained weights."""
    from lr_sweep.sweep.inspection.deviations import write_deviations

    results = results_here(chosen.results, weights=True)
    print("\n".join(map(str, write_deviations(chosen.weights, chosen.model, results, chosen.out))))
    return 0
