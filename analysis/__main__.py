"""Write a study's report: `python -m analysis RESULTS STUDY`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.record import RecordError
from analysis.report import write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the report, print it, and return the exit code: 0, or 2 for a mistake of the user's."""
    parser = argparse.ArgumentParser(prog="python -m analysis", description="Write a study's report from its record.")
    parser.add_argument("results", type=Path, help="results directory")
    parser.add_argument("study", help="name of the study")
    given = parser.parse_args(arguments)
    try:
        report = write_report(given.results, given.study)
    except (RecordError, OSError) as error:  # OSError: for instance the results directory cannot be written
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report.text)
    print(f"Report: {report.folder / 'report.md'} and {len(report.files) - 1} files beside it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
