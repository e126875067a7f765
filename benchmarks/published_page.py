"""The page of the papers' own values: `python -m benchmarks.published_page docs/results/rothermel2021`."""

from __future__ import annotations

import argparse
from pathlib import Path

from lr_sweep.analysis.paper.demonstration import write_demonstration


def main() -> None:
    """Write the page into a folder, and print where."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write index.html")
    print(write_demonstration(parser.parse_args().folder))


if __name__ == "__main__":
    main()
