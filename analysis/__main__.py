"""Write studies' reports: `python -m analysis RESULTS [STUDY ...]`; needs neither torch nor ray."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.read import check_format, recorded_studies
from lr_sweep.analysis.study_report import write_report
from lr_sweep.common.errors import UserError
from lr_sweep.common.object_store import local_path
from lr_sweep.common.working_copy import publish, refresh


def main(arguments: Sequence[str] | None = None) -> int:
    """Write and print reports; return the exit code: 0, 1 with `--strict` and problems, 2 for a user's mistake."""
    parser = argparse.ArgumentParser(prog="python -m analysis", description="Write studies' reports from their record.")
    parser.add_argument("results", help="results directory, or s3://BUCKET/PREFIX")
    parser.add_argument(
        "studies", nargs="*", metavar="STUDY", help="names of studies; default: all that were run there"
    )
    parser.add_argument("--strict", action="store_true", help="exit with code 1 if the checks find a problem")
    given = parser.parse_args(arguments)
    try:
        results = local_path(given.results) or refresh(given.results)
        check_format(results)
        studies = given.studies or recorded_studies(results)
        if not studies:
            raise RecordError(f"no study was run in {given.results}: `lr-sweep run STUDY` makes a record")
        reports = []
        for study in studies:
            reports.append(report := write_report(results, study))
            print(f"{report.text}\nReport: {report.page} and {len(report.files) - 1} files beside it")
        if local_path(given.results) is None:
            for report in reports:
                print(f"Report: {publish(given.results, results, report.folder)}")
    except (UserError, OSError) as error:  # OSError: for instance the results directory cannot be written
        print(f"error: {error}", file=sys.stderr)
        return 2
    return int(given.strict and any(report.num_problems for report in reports))


if __name__ == "__main__":
    sys.exit(main())
