"""The panel "Results" of `--help`: commands about a results directory; slow imports stay inside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lr_sweep.common.errors import UserError, unknown
from lr_sweep.sweep.cli import options as opt

from .app import command

if TYPE_CHECKING:
    from lr_sweep.sweep.results.directory import Results


@command("ls quickstart")
def ls(
    studies: Annotated[
        opt.SomeStudies,
        opt.argument("STUDY", "List only these studies and their runs, in this order."),
    ] = None,
    results: opt.Results = "results",
    json: opt.Json = False,
) -> None:
    """List the studies of a results directory, and each run that has started or ended, with its values at the step of
    the best validation value.
    """
    from lr_sweep.sweep.inspection.status import listing, listing_json

    recorded = opt.open_results(results, curves=False)
    names = opt.study_names(studies, recorded)
    if json:
        return opt.print_json(listing_json(recorded, names))
    opt.say(listing(recorded, names))


@command("show 0f3a --log")
def show(
    run: opt.Run,
    log: Annotated[
        bool, opt.flag("Print its log: starts, evaluations, what a function printed, failures.")
    ] = False,
    results: opt.Results = "results",
    json: opt.Json = False,
) -> None:
    """Show everything about a run: what defines it, how it ended, what it cost, its files and its curve."""
    from lr_sweep.sweep.inspection.show import log_text, run_json, run_text

    opt.not_together(log=log, json=json)
    if json:
        return opt.print_json(run_json(opt.open_results(results), run))
    text = log_text if log else run_text
    opt.say(text(opt.open_results(results), run))


@command("ui cluster.yaml")
def ui(
    cluster: Annotated[
        Path | None,
        opt.argument(
            "FILE", "Open tunnels to the cluster that `ray up` made from FILE.", opt.local_path
        ),
    ] = None,
    results: Annotated[
        str | None, opt.option("DIR", f"{opt.RESULTS_HELP} By default ./results.", opt.location)
    ] = None,
    port: Annotated[
        int, opt.number("The port of the pages, on this machine's loopback address.", most=65_535)
    ] = 5000,
) -> int:
    """Serve a live page of a results directory and MLflow's pages, or open the MLflow and Ray pages of a cluster."""
    from lr_sweep.sweep.terminal import signals_as_ctrl_c

    if cluster is not None and results is not None:
        raise UserError("FILE and --results exclude each other: leave one of them out")
    with signals_as_ctrl_c():
        if cluster is None:
            _serve(opt.open_results(results or "results"), port)
            return 0
        from lr_sweep.sweep.cluster.tunnels import open_tunnels

        return open_tunnels(cluster, port)


def _serve(results: Results, port: int) -> None:
    import secrets
    import socket

    from lr_sweep.analysis.record.read import check_format
    from lr_sweep.sweep.live.guard import LOOPBACK, link
    from lr_sweep.sweep.live.server import serve

    check_format(results.root)
    token, say = secrets.token_hex(16), opt.say
    try:
        socket.create_server((LOOPBACK, port)).close()
    except OSError as problem:
        raise UserError(
            f"cannot listen on {LOOPBACK}:{port} ({problem.strerror}); another program may have it: choose another "
            "with --port"
        ) from problem
    say(f"live page  {link(port, token)}")
    say(
        "Open it first: its token lets this browser read MLflow, too, which follows within 20 s. Ctrl-C ends both."
    )
    serve(results, port, token, say)


@command("verify --results results")
def verify(
    studies: Annotated[
        opt.SomeStudies,
        opt.argument(
            "STUDY",
            "Also train a few steps of these studies' training functions: do they repeat, and resume exactly? "
            "Before the first run, nothing else is checked.",
        ),
    ] = None,
    results: opt.Results = "results",
    data_dir: opt.DataDir = None,
) -> int:
    """Check every file of a results directory, also during a sweep; the exit code is 1 if something is wrong."""
    from lr_sweep.sweep.inspection.verify import probe_study
    from lr_sweep.sweep.inspection.verify import verify as verify_all
    from lr_sweep.sweep.store.results import fetched

    problems = 0
    with fetched(results) as recorded:
        if studies and not recorded.exists():
            recorded.check()
            opt.say(f"{recorded.location} holds nothing yet")
        else:
            # A store is verified in a temporary copy; findings name the store.
            problems = verify_all(
                recorded, lambda line: opt.say(line.replace(str(recorded.root), recorded.location))
            )
    if studies:
        say, folder = opt.say, opt.data_folder(data_dir)
        problems += sum(probe_study(study, folder, say) for study in opt.load_studies(studies))
    return 1 if problems else 0


@command("export curves.csv quickstart")
def export(
    names: Annotated[
        list[str] | None,
        opt.argument(
            "TARGET|STUDY",
            "The CSV file to make, which must not exist, then studies; by default all. With --mlflow, only studies.",
            opt.location,
        ),
    ] = None,
    mlflow: Annotated[
        bool,
        opt.flag(
            "Rebuild MLflow at $MLFLOW_TRACKING_URI, by default the database in the results directory."
        ),
    ] = False,
    results: opt.Results = "results",
) -> None:
    """Write every evaluation of studies into a CSV file for other programs, or rebuild MLflow from the record."""
    from lr_sweep.sweep.inspection.export import write_csv, write_mlflow

    recorded, given = opt.open_results(results), names or []
    if mlflow:
        recorded.check()
        opt.say(write_mlflow(recorded, opt.study_names(given, recorded)))
        return
    if not given:
        raise UserError("missing: TARGET, the CSV file to make, or --mlflow")
    target, *studies = given
    opt.say(write_csv(recorded, studies, Path(target).expanduser()))


@command("gc --only leftovers --only checkpoints")
def gc(
    yes: Annotated[bool, opt.flag("Remove all that is listed without asking.")] = False,
    only: Annotated[
        list[str] | None,
        opt.option(
            "KIND",
            "leftovers, checkpoints or unwanted (runs that no study wants); may be repeated; by default all.",
        ),
    ] = None,
    results: opt.Results = "results",
) -> None:
    """List what can be removed from a results directory, and ask before removing it."""
    from lr_sweep.analysis.record.read import check_format
    from lr_sweep.sweep.inspection.gc import KINDS, collect
    from lr_sweep.sweep.store.results import directory_at

    def agreed(kind: str) -> bool:
        unasked = "nothing was removed: there is no terminal to ask at. Give --yes to remove what is listed."
        return yes or opt.agreed(f"{kind}: remove?", unasked)

    for kind in only or ():
        if kind not in KINDS:
            raise UserError(unknown("kind", kind, KINDS))
    recorded = directory_at(results, "gc")
    check_format(recorded.root)
    collect(recorded, only or KINDS, agreed, opt.say)
