"""What the commands do that look after a results directory. As `sweep.commands`; none of them needs torch."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Collection
from pathlib import Path

from analysis.record import check_format, recorded_studies
from analysis.working_copy import publish
from sweep.errors import UserError, unknown
from sweep.results import Results, storage_problems
from sweep.stored_results import directory_at, fetched, results_here


def status(chosen: Namespace) -> int:
    """Print how far studies are."""
    from sweep.status import status_text

    results = results_here(chosen.results)
    results.check()
    for study in _study_names(chosen, results):
        print(status_text(results, study))
    return 0


def report(chosen: Namespace) -> int:
    """Write reports of what the record holds."""
    from analysis.findings import problems
    from analysis.report import write_report
    from datasets.sources import version_here

    num_problems = 0
    results = results_here(chosen.results)
    results.check()
    for study in _study_names(chosen, results):
        with storage_problems(results.root):
            written = write_report(results.root, study, version_here)
        print(f"{written.text}\n\nreport     {written.page}")
        if results.uri is not None:
            print(f"store      {publish(results.uri, results.root, written.folder)}")
        num_problems += len(problems(written.findings))
    return int(chosen.strict and num_problems > 0)


def ls(chosen: Namespace) -> int:
    """List studies and runs."""
    from sweep.listing import listing

    results = results_here(chosen.results)
    print(listing(results, _study_names(chosen, results)))
    return 0


def show(chosen: Namespace) -> int:
    """Print everything about a run."""
    from sweep.show import run_text

    print(run_text(results_here(chosen.results), chosen.run))
    return 0


def mlflow_sync(chosen: Namespace) -> int:
    """Bring MLflow in line with the record."""
    from sweep.mirror_sync import sync

    results = results_here(chosen.results)
    results.check()
    print(sync(results, _study_names(chosen, results)))
    return 0


def export_results(chosen: Namespace) -> int:
    """Write results into an archive."""
    from sweep.archive_export import export

    if chosen.checkpoints:
        directory_at(chosen.results, "export --checkpoints")
    results = results_here(chosen.results, weights=True)
    exported = export(results, chosen.archive, chosen.studies, checkpoints=chosen.checkpoints)
    print(exported.text)
    return 1 if exported.left_out else 0


def import_results(chosen: Namespace) -> int:
    """Merge an archive into a results directory."""
    from sweep.archive_import import import_archive

    print(import_archive(chosen.archive, directory_at(chosen.results, "import")))
    return 0


def verify(chosen: Namespace) -> int:
    """Check every file of a results directory."""
    from sweep.verify import verify as verify_all

    with fetched(chosen.results) as results:
        # A store's files are looked at in a copy that is thrown away.
        return 1 if verify_all(results, lambda line: print(line.replace(str(results.root), results.location))) else 0


def gc(chosen: Namespace) -> int:
    """Remove what a results directory can do without, kind by kind."""
    from sweep.garbage import KINDS, collect

    def agreed(kind: str) -> bool:
        if chosen.yes:
            return True
        if not sys.stdin.isatty():
            raise UserError("nothing was removed: there is no terminal to ask at. Say --yes to remove what is listed.")
        try:
            return input(f"{kind}: remove? [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            return False

    results = directory_at(chosen.results, "gc")
    check_format(results.root)
    collect(results, chosen.only or KINDS, agreed, print)
    return 0


def _study_names(chosen: Namespace, results: Results) -> list[str]:
    if chosen.studies and results.uri is None:
        check_format(results.root)  # first: in a directory that is none, every study would be unknown
    recorded = recorded_studies(results.root)
    return [_study_name(given, recorded) for given in chosen.studies]


def _study_name(given: str, recorded: Collection[str]) -> str:
    """Return the name of a recorded study from its name or file; one of a study that was never run passes, too.

    Raises:
        UserError: no such study, or mistakes in its file.
    """
    path = Path(given)
    is_file = path.suffix in (".yaml", ".yml")
    name = path.stem if is_file else given
    if name in recorded and (path.is_file() or not is_file):
        return name
    from sweep.study_file import load_study, shipped_studies  # imported late: reading a recorded study needs no YAML

    if not is_file and given not in shipped_studies():
        known = {*shipped_studies(), *recorded}
        raise UserError(f"{unknown('study', given, known)}; or give the path of a .yaml file")
    return load_study(given).study
