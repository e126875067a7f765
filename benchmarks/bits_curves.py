"""The curves of `bits-small` at the chosen learning rates, for docs/results: `python -m benchmarks.bits_curves DIR`.

DIR is the results directory that the study was run into. Writes docs/results/bits-small/curves.png.
"""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib.figure import Figure

from lr_sweep.common.text import rate_text
from lr_sweep.sweep.api import Sweep

TARGET = Path(__file__).parent.parent / "docs" / "results" / "bits-small" / "curves.png"
STYLES = {"frozen-pretrained": "-", "frozen-random": "--"}
COLOURS = {"tiny": "tab:blue", "small-bit": "tab:orange"}
PRETRAINED_ON = {"tiny": "text", "small-bit": "bit memory"}


def main(results: Path) -> None:
    """Draw a panel a task; a line is the mean over seeds, a band from the lowest to the highest of them."""
    sweep = Sweep("bits-small", results)
    chosen = sweep.summary().chosen_runs
    curves = sweep.curves()[["run_id", "step", "validation_accuracy"]].merge(
        chosen.drop(columns="validation_accuracy")
    )
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axes, (task, of_task) in zip(figure.subplots(1, 2), curves.groupby("task"), strict=True):
        for (model, variant, rate), cell in of_task.groupby(["model", "variant", "learning_rate"]):
            by_step = 100 * cell.groupby("step")["validation_accuracy"].agg(["mean", "min", "max"])
            body = (
                f"pretrained on {PRETRAINED_ON[model]}"
                if variant == "frozen-pretrained"
                else "random"
            )
            label = f"{model}, {body}, {rate_text(rate)}"
            axes.plot(
                by_step.index, by_step["mean"], STYLES[variant], color=COLOURS[model], label=label
            )
            axes.fill_between(
                by_step.index, by_step["min"], by_step["max"], color=COLOURS[model], alpha=0.15
            )
        axes.set(
            title=task, xlabel="gradient step", ylabel="validation accuracy (%)", ylim=(48, 102)
        )
        axes.legend(fontsize="x-small", loc="center right", bbox_to_anchor=(1, 0.3))
    figure.savefig(TARGET, dpi=150)
    print(TARGET)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
