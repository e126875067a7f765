"""The curve of a pretraining on text, for docs/results: `python -m benchmarks.pretraining_curve FOLDER`.

FOLDER is one of a results directory's `pretrained/`. Writes docs/results/english-books/curve.png.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

TARGET = Path(__file__).parent.parent / "docs" / "results" / "english-books" / "curve.png"


def figure_of(facts: dict[str, Any]) -> Figure:
    """Draw the curve in a `pretraining.json`: bits per byte of held-out text against millions of bytes trained on."""
    bytes_a_step = facts["recipe"]["batch_size"] * facts["recipe"]["num_tokens"]
    steps, bits = zip(*facts["curve"], strict=True)
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot([step * bytes_a_step / 1e6 for step in steps], bits)
    axes.set(xlabel="text trained on (MB)", ylabel="held-out text (bits per byte)", ylim=(0, 8.2))
    axes.annotate(
        f"{bits[-1]:.2f}",
        (steps[-1] * bytes_a_step / 1e6, bits[-1]),
        (0, 6),
        textcoords="offset points",
        ha="right",
    )
    return figure


def main(folder: Path) -> None:
    """Read the folder's facts, draw and save."""
    TARGET.parent.mkdir(exist_ok=True)
    facts = json.loads((folder / "pretraining.json").read_text())
    figure_of(facts).savefig(TARGET, dpi=150)
    print(TARGET)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
