"""Commands that look into a results directory or maintain it; they import what takes a moment."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli import options as opt
from lr_sweep.sweep.cli import streams
from lr_sweep.sweep.cli.app import command


@command("0f3a")
def stop(run: opt.Run, results: opt.Results = "results") -> None:
    """End one run of a sweep that is running; the others train on, and `run --retry-failed` trains it further."""
    from lr_sweep.sweep.inspection.stop import request_stop

    print(request_stop(opt.open_directory(results, "stop"), run))


@command("quickstart")
def status(studies: opt.Studies, results: opt.Results = "results", json: opt.Json = False) -> None:
    """Print the progress of a study, while it runs or after a crash."""
    from lr_sweep.sweep.inspection.status import status_json, status_text

    recorded = opt.open_results(results, curves=False)
    recorded.check()
    names = opt.study_names(studies, recorded)
    if json:
        return streams.print_json({"studies": [status_json(recorded, study) for study in names]})
    for study in names:
        print(status_text(recorded, study))


@command("quickstart")
def ls(
    studies: Annotated[
        opt.SomeStudies, opt.argument("STUDY", "only these studies and their runs, in their order")
    ] = None,
    results: opt.Results = "results",
    json: opt.Json = False,
) -> None:
    """List the studies of a results directory, and every run that has started or ended, with its accuracies at the
    step of the highest validation accuracy.
    """
    from lr_sweep.sweep.inspection.ls import listing, listing_json

    recorded = opt.open_results(results, curves=False)
    names = opt.study_names(studies, recorded)
    if json:
        return streams.print_json(listing_json(recorded, names))
    print(listing(recorded, names))


@command("0f3a --log")
def show(
    run: opt.Run,
    log: Annotated[bool, opt.flag("its log instead: starts, evaluations, what a function printed, failures")] = False,
    results: opt.Results = "results",
    json: opt.Json = False,
) -> None:
    """Print everything about a run: what defines it, how it ended, what it cost, its files and its curve."""
    from lr_sweep.sweep.inspection.show import log_text, run_json, run_text

    opt.not_together(log=log, json=json)
    if json:
        return streams.print_json(run_json(opt.open_results(results), run))
    text = log_text if log else run_text
    print(text(opt.open_results(results), run))


@command("coordinates law-width-mup --out figures")
def figure(
    kind: Annotated[
        Literal["attention", "deviations", "coordinates"],
        opt.argument(
            None,
            "attention: what a trained GPT-2 attends to (Lu et al. 2021, figures 3 to 5). deviations: of pretrained "
            "weights, by layer (Lu et al. 2021, figure 6). coordinates: how activations grow with the width over a "
            "study's first steps (Yang et al. 2022, section D.1); where they do, the best learning rate moves with it",
        ),
    ],
    target: Annotated[
        str,
        opt.argument(
            "RUN|STUDY|FOLDER", "a run for attention, a study, or a folder of weights for deviations", opt.location
        ),
    ],
    results: opt.Results = "results",
    data_dir: opt.DataDir = None,
    out: opt.Out = Path(),
    examples: Annotated[int | None, opt.number("attention: how many test examples; default: 1")] = None,
    layer: Annotated[int | None, opt.number("attention: from 0, the default", partial(opt.whole, least=0))] = None,
    model: Annotated[
        str | None, opt.option("NAME", "deviations: which model of the study; default: the only one with weights")
    ] = None,
    rate: Annotated[
        float | None,
        opt.option(
            "RATE", "coordinates: default: the study's middle one", partial(opt.above_zero, what="a learning rate")
        ),
    ] = None,
    steps: Annotated[
        int | None, opt.number("coordinates: gradient steps; default: 5", partial(opt.whole, most=1000))
    ] = None,
) -> None:
    """Draw what is inside trained or pretrained models, as a figure and its numbers."""
    from lr_sweep.sweep.inspection.figures import Target, draw

    recorded = (
        opt.open_directory(results, "figure attention")
        if kind == "attention"
        else opt.open_results(results, weights=True)
    )
    options = {"examples": examples, "layer": layer, "model": model, "rate": rate, "steps": steps}
    for line in draw(kind, Target(target, recorded, opt.data_folder(data_dir), out), **options):
        print(line)


@command("curves.csv quickstart --csv")
def export(
    target: Annotated[
        Path, opt.argument("TARGET", "the file or folder to make; `export` replaces none", opt.local_path)
    ],
    studies: Annotated[opt.SomeStudies, opt.argument("STUDY", "studies by name; default: all")] = None,
    csv: Annotated[bool, opt.flag("write every evaluation into a CSV file, for `judge`, pandas or W&B")] = False,
    tensorboard: Annotated[bool, opt.flag("write event files into a folder, one a run, for TensorBoard")] = False,
    results: opt.Results = "results",
) -> None:
    """Write the curves of studies for other programs; `merge` takes a results directory as it is."""
    from lr_sweep.sweep.inspection.export import write_csv, write_tensorboard

    opt.not_together(csv=csv, tensorboard=tensorboard)
    if not (csv or tensorboard):
        raise UserError("got no format to export to: give --csv or --tensorboard")
    write = write_csv if csv else write_tensorboard
    print(write(opt.open_results(results), studies or [], target))


@command("from-the-cluster --results results")
def merge(
    other: Annotated[str, opt.argument("DIR", "another results directory, or s3://BUCKET/PREFIX", opt.location)],
    results: opt.Results = "results",
) -> None:
    """Merge another results directory into this one by run id; if anything contradicts, nothing is changed."""
    from lr_sweep.sweep.inspection.merge import merge_results

    print(merge_results(other, opt.open_directory(results, "merge")))


@command("--results results")
def verify(
    studies: Annotated[
        opt.SomeStudies,
        opt.argument(
            "STUDY", "train a few steps of the training functions of these, too: do they repeat, and resume exactly?"
        ),
    ] = None,
    results: opt.Results = "results",
    data_dir: opt.DataDir = None,
) -> int:
    """Check every file of a results directory, also during a sweep; exit code 1 if something is wrong."""
    from lr_sweep.sweep.inspection.verify import verify as verify_all
    from lr_sweep.sweep.store.results import fetched

    with fetched(results) as recorded:
        # A store is verified in a temporary copy; findings name the store.
        problems = verify_all(recorded, lambda line: print(line.replace(str(recorded.root), recorded.location)))
    if studies:
        from lr_sweep.sweep.inspection.probe_study import probe_study  # only it needs torch

        say, folder = partial(print, flush=True), opt.data_folder(data_dir)
        problems += sum(probe_study(study, folder, say) for study in opt.load_studies(studies))
    return 1 if problems else 0


@command("--only leftovers --only checkpoints")
def gc(
    yes: Annotated[bool, opt.flag("remove it all without asking")] = False,
    only: Annotated[
        list[str] | None,
        opt.option(
            "KIND",
            "leftovers, scratch, checkpoints or unwanted (runs that no study wants); repeatable; default: all",
            partial(opt.one_of, names=("leftovers", "scratch", "checkpoints", "unwanted")),
        ),
    ] = None,
    results: opt.Results = "results",
) -> None:
    """List what can be removed from a results directory, and ask before removing it."""
    from lr_sweep.analysis.record.read import check_format
    from lr_sweep.sweep.inspection.gc import KINDS, collect

    def agreed(kind: str) -> bool:
        elsewhere = "nothing was removed: there is no terminal to ask at. Give --yes to remove what is listed."
        return yes or streams.agreed(f"{kind}: remove?", elsewhere)

    recorded = opt.open_directory(results, "gc")
    check_format(recorded.root)
    collect(recorded, only or KINDS, agreed, print)
