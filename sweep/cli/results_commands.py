"""Commands that show or maintain a results directory, as those of `sweep.cli.study_commands`; none needs torch."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection
from pathlib import Path

from lr_sweep.analysis.record.read import check_format, recorded_studies
from lr_sweep.analysis.record.working_copy import publish
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli import asking
from lr_sweep.sweep.results.directory import Results, storage_problems
from lr_sweep.sweep.store.results import directory_at, fetched, results_here


def status(chosen: Namespace) -> int:
    """Print the progress of studies."""
    from lr_sweep.sweep.inspection.status import status_text

    results = results_here(chosen.results)
    results.check()
    for study in _study_names(chosen, results):
        print(status_text(results, study))
    return 0


def stop(chosen: Namespace) -> int:
    """Ask for the end of one run of a sweep that is running."""
    from lr_sweep.sweep.inspection.stop import request_stop

    print(request_stop(directory_at(chosen.results, "stop"), chosen.run))
    return 0


def report(chosen: Namespace) -> int:
    """Write reports of what is recorded."""
    from lr_sweep.analysis.study_report import write_report
    from lr_sweep.common.source_code import version_here
    from lr_sweep.sweep.mirror.sync import mirror_report

    num_problems = 0
    results = results_here(chosen.results)
    results.check()
    if chosen.watch:
        _watch(chosen, results)
    for study in _study_names(chosen, results):
        with storage_problems(results.root):
            written = write_report(results.root, study, version_here)
        print(f"{written.text}\n\nreport     {written.page}")
        if line := mirror_report(results, study):
            print(line)
        if results.uri is not None:
            print(f"store      {publish(results.uri, results.root, written.folder)}")
        num_problems += written.num_problems
    return int(chosen.strict and num_problems > 0)


def _watch(chosen: Namespace, results: Results) -> None:
    """Write reports again whenever their record has changed; ends by KeyboardInterrupt."""
    from lr_sweep.analysis.study_report import Report
    from lr_sweep.analysis.watch import watch
    from lr_sweep.common.source_code import version_here
    from lr_sweep.sweep.terminal import signals_as_ctrl_c

    if chosen.strict:
        raise UserError("--watch ends by Ctrl-C, so --strict has no exit code to set: leave one of them out")
    if results.uri is not None:
        raise UserError(f"--watch reads a results directory on this machine, got {results.uri}: run `report` instead")

    def show(report: Report) -> None:
        opening = next(line for line in report.text.splitlines() if " runs wanted: " in line)
        print(f"{opening} {report.page}", flush=True)

    with signals_as_ctrl_c(), storage_problems(results.root):
        watch(results.root, _study_names(chosen, results), version_here, show)


def ls(chosen: Namespace) -> int:
    """List studies and runs."""
    from lr_sweep.sweep.inspection.ls import listing

    results = results_here(chosen.results)
    print(listing(results, _study_names(chosen, results)))
    return 0


def show(chosen: Namespace) -> int:
    """Print everything about a run."""
    from lr_sweep.sweep.inspection.show import log_text, run_text

    text = log_text if chosen.log else run_text
    print(text(results_here(chosen.results), chosen.run))
    return 0


def mlflow(chosen: Namespace) -> int:
    """Rebuild MLflow from the record."""
    from lr_sweep.sweep.mirror.sync import sync

    results = results_here(chosen.results)
    results.check()
    print(sync(results, _study_names(chosen, results)))
    return 0


def ui(chosen: Namespace) -> int:
    """Open the MLflow pages, and Ray's of a cluster."""
    from lr_sweep.sweep.mirror.client import end_by_signals, open_ui

    end_by_signals()
    if chosen.cluster is not None:
        from lr_sweep.sweep.cluster.tunnels import open_tunnels

        if chosen.host != "127.0.0.1":
            raise UserError("--host works only with --results: tunnels to a cluster listen on 127.0.0.1")
        return open_tunnels(chosen.cluster, chosen.port)
    return open_ui(results_here(chosen.results).root, chosen.host, chosen.port)


def export(chosen: Namespace) -> int:
    """Write results into an archive, or curves for other programs."""
    from lr_sweep.sweep.archive import exporter

    if chosen.csv or chosen.tensorboard:
        from lr_sweep.sweep.archive.curves import write_csv, write_tensorboard

        write = write_csv if chosen.csv else write_tensorboard
        print(write(results_here(chosen.results), chosen.studies, chosen.target))
        return 0
    if chosen.checkpoints:
        directory_at(chosen.results, "export --checkpoints")
    results = results_here(chosen.results, weights=True)
    exported = exporter.export(results, chosen.target, chosen.studies, checkpoints=chosen.checkpoints)
    print(exported.text)
    return 1 if exported.left_out else 0


def import_(chosen: Namespace) -> int:
    """Merge an archive into a results directory."""
    from lr_sweep.sweep.archive.importer import import_archive

    print(import_archive(chosen.archive, directory_at(chosen.results, "import")))
    return 0


def verify(chosen: Namespace) -> int:
    """Check every file of a results directory, and the training functions of the given studies."""
    from lr_sweep.sweep.inspection.verify import verify as verify_all

    with fetched(chosen.results) as results:
        # A store is verified in a temporary copy; findings name the store.
        problems = verify_all(results, lambda line: print(line.replace(str(results.root), results.location)))
    if chosen.studies:
        from lr_sweep.sweep.cli.study_commands import probe  # imported late: only training functions need torch

        problems += probe(chosen)
    return 1 if problems else 0


def gc(chosen: Namespace) -> int:
    """Remove what no study needs from a results directory, kind by kind."""
    from lr_sweep.sweep.inspection.gc import KINDS, collect

    def agreed(kind: str) -> bool:
        elsewhere = "nothing was removed: there is no terminal to ask at. Give --yes to remove what is listed."
        return chosen.yes or asking.agreed(f"{kind}: remove?", elsewhere)

    results = directory_at(chosen.results, "gc")
    check_format(results.root)
    collect(results, chosen.only or KINDS, agreed, print)
    return 0


def _study_names(chosen: Namespace, results: Results) -> list[str]:
    """Return the names of the given studies: recorded ones, or ones that could be."""
    if chosen.studies and results.uri is None:
        check_format(results.root)  # first: without a record, every study would be unknown
    recorded = recorded_studies(results.root)
    return [_study_name(given, recorded) for given in chosen.studies]


def _study_name(given: str, recorded: Collection[str]) -> str:
    path = Path(given)
    is_file = path.suffix in (".yaml", ".yml")
    name = path.stem if is_file else given
    if name in recorded and (path.is_file() or not is_file):
        return name
    from lr_sweep.sweep.study.file import load_study  # imported late: a recorded study needs no YAML

    return load_study(given, recorded).study
