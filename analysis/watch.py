"""Writes studies' reports again whenever their record has changed: `report --watch`, while a sweep runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lr_sweep.analysis.record.code_versions import Now
from lr_sweep.analysis.record.index import row_stamps
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.study_report import Report, write_report

REFRESH_S = 5
"""Seconds between looks at the record, and after which the page reads itself again."""

Stamp = tuple[object, ...]
"""Changes when a run has ended or the study wants other runs."""


def record_stamp(results: Path, study: str) -> Stamp:
    """Return the stamp of what a study's report is written from."""
    wanted = Paths(results).wanted(study).stat()
    return wanted.st_mtime_ns, wanted.st_size, tuple(sorted(row_stamps(results).items()))


def watch(
    results: Path,
    studies: Sequence[str],
    code_now: Now | None = None,
    show: Callable[[Report], None] = lambda report: None,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Write the reports, and each again when its record has changed, until Ctrl-C; `show` is given each one.

    Pages refresh themselves every `REFRESH_S` seconds. At the end they are written once more, without that. Raises
    KeyboardInterrupt, and what `write_report` raises.
    """
    seen: dict[str, Stamp] = {}
    try:
        while True:
            for study in studies:
                stamp = record_stamp(results, study)  # before reading: a run that ends meanwhile is in the next report
                if seen.get(study) != stamp:
                    show(write_report(results, study, code_now, refresh_s=REFRESH_S))
                    seen[study] = stamp
            wait(REFRESH_S)
    finally:
        for study in seen:
            write_report(results, study, code_now)
