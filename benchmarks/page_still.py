"""README's picture of the report's figure: `python -m benchmarks.page_still docs/images/report-handle.png`.

Judges the runs of docs/results/mnist-converged, opens the page in a headless Chromium, puts the handle on 1e-2.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pandas as pd
from PIL import Image

from lr_sweep.analysis.judge.judge import judged, write_judged
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.tests.support.servers.headless_browser import Browser, browser

RUNS = Path("docs/results/mnist-converged/runs.csv")
AT = 1e-2
"""The learning rate that the handle is on."""
WIDTH, HEIGHT = 1180, 1000
COLOURS = 128
"""Of the palette: a drawing has few."""


def main() -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    picture = parser.parse_args().picture
    with tempfile.TemporaryDirectory() as scratch, browser(Path(scratch) / "profile") as window:
        page = write_judged(judged([RUNS], Reading()).study, Path(scratch) / "report").page
        window.open(page, WIDTH, HEIGHT)
        top, bottom = _show(window)
        window.screenshot(picture)
    with Image.open(picture) as drawn:
        drawn.crop((0, top, WIDTH, bottom)).quantize(COLOURS).save(picture, optimize=True)


def _show(window: Browser) -> tuple[int, int]:
    """Move the handle to `AT`, scroll to the figure, and return its top and bottom in the window."""
    window.evaluate("document.querySelector('.handle').focus()")
    rates = sorted(pd.read_csv(RUNS)["learning_rate"].unique())
    for key in ("Home", *["ArrowRight"] * rates.index(AT)):
        window.press(key)
    window.evaluate("document.activeElement.blur()")
    window.evaluate(
        "document.querySelector('#sweep').scrollIntoView({block: 'start', behavior: 'instant'})"
    )
    top, bottom = window.evaluate(
        "[document.querySelector('#sweep'), document.querySelector('#key')].map(e => e.getBoundingClientRect())"
        ".map((box, i) => i ? box.bottom : box.top)"
    )
    return max(0, int(top) - 8), int(bottom) + 8


if __name__ == "__main__":
    main()
