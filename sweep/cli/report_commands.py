"""`report`, `judge`, `ui` and `mlflow`. They import what takes a moment."""

from __future__ import annotations

import gc
import math
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted
from lr_sweep.sweep.cli import options as opt
from lr_sweep.sweep.cli import streams
from lr_sweep.sweep.cli.app import command

if TYPE_CHECKING:
    from lr_sweep.analysis.judge.reading import Reading
    from lr_sweep.sweep.results.directory import Results

WIDTH = 110
"""Of a paragraph on the terminal."""
GATE_CODES = {"accept": 0, "reject": 1, "run": 3}


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep Python from looking for garbage: what a report is made of lives until it is written. A tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@command("quickstart --strict")
def report(
    studies: opt.Studies,
    results: opt.Results = "results",
    strict: opt.Strict = False,
) -> int:
    """Write tables, figures and checks of what is recorded so far."""
    from lr_sweep.analysis.record.working_copy import publish
    from lr_sweep.analysis.study_report import write_report
    from lr_sweep.common.source_code import version_here
    from lr_sweep.sweep.mirror.sync import mirror_report
    from lr_sweep.sweep.results.directory import storage_problems

    recorded, num_problems = opt.open_results(results), 0
    recorded.check()
    for study in opt.study_names(studies, recorded):
        with storage_problems(recorded.root):
            written = write_report(recorded.root, study, version_here)
        print(f"{written.text}\n\nreport     {written.page}")
        if line := mirror_report(recorded, study):
            print(line)
        if recorded.uri is not None:
            print(f"store      {publish(recorded.uri, recorded.root, written.folder)}")
        num_problems += written.num_problems
    return int(strict and num_problems > 0)


@command("runs.csv --columns learning_rate=lr,validation=val_acc")
def judge(
    tables: Annotated[
        list[str],
        opt.argument(
            "TABLE",
            "CSV, Parquet, JSON or `-`, with a row a run or an evaluation; a folder of Ray Tune, Hydra, Lightning or "
            "TensorBoard; a database of Optuna or MLflow, or the address of MLflow's server",
            opt.location,
        ),
    ],
    columns: Annotated[
        list[str] | None,
        opt.option(
            "MEANING=NAME,...",
            "which column is task, model, variant, learning_rate, seed, step, num_steps, run, status, validation, "
            "test, train, nuisance (tuned as the rate is) or ignored, where it is not guessed; A+B for several, "
            "MEANING= for none; or the file that --save wrote",
        ),
    ] = None,
    metric: Annotated[
        str | None, opt.option("NAME", "name of the metric; default: the name of validation's column")
    ] = None,
    lower_is_better: Annotated[bool, opt.flag("of the metric; default: by its name")] = False,
    higher_is_better: Annotated[bool, opt.flag("of the metric; default: by its name")] = False,
    select_on_test: Annotated[
        bool, opt.flag("choose on test data, in a table without validation data; the report says so")
    ] = False,
    paired: Annotated[bool, opt.flag("compare variants by seed, where seeds are seen to move them alike")] = False,
    equal_within: Annotated[
        float | None, opt.option("SIZE", "differences below it are none; in points of percent, or as the metric is")
    ] = None,
    decide: Annotated[
        str | None,
        opt.option(
            "TABLE", "of seeds that chose nothing, at the chosen rates: what they decide, and which to run next"
        ),
    ] = None,
    out: Annotated[Path | None, opt.option("FOLDER", "of the report; default: ./judged/TABLE", opt.local_path)] = None,
    save: Annotated[
        Path | None, opt.option("FILE", "keep how the table was read, for --columns FILE", opt.local_path)
    ] = None,
    strict: opt.Strict = False,
    gate: Annotated[
        bool,
        opt.flag(
            "of two tables, BASELINE CANDIDATE, or TABLE#VARIANT twice: accept (code 0), reject (1), or which seeds "
            "to run (3); writes no report"
        ),
    ] = False,
    min_gain: Annotated[
        float, opt.option("SIZE", "what the candidate has to gain more than, with --gate; as --equal-within")
    ] = 0.0,
    max_seeds: Annotated[
        int, opt.number("fresh seeds of each, with --gate", partial(opt.whole, least=4, most=200))
    ] = 20,
    json: opt.Json = False,
) -> int:
    """Write tables, figures and checks of runs that any program made (docs/judge.md)."""
    import pandas

    from lr_sweep.analysis.judge.judge import SHARED_SEEDS, judged
    from lr_sweep.analysis.judge.reading import KEPT, Reading, save_reading
    from lr_sweep.analysis.judge.write import check_apart, write_judged
    from lr_sweep.sweep.cli.ask import answered

    pandas.options.mode.string_storage = "python"  # Arrow's strings are slower in many small frames
    opt.not_together(lower_is_better=lower_is_better, higher_is_better=higher_is_better)
    if save is not None and not save.name.endswith(KEPT):
        raise UserError(f"--save {save}: want a name that ends in .yaml, as --columns takes the file by")
    if equal_within is not None and not 0 < equal_within < math.inf:
        raise UserError(f"--equal-within: got {equal_within:g}, want a difference above 0")
    reading = _reading(columns or []).but(
        Reading(
            metric=metric,
            higher_is_better=higher_is_better if higher_is_better or lower_is_better else None,
            select_on_test=select_on_test,
            paired=paired,
            equal_within=equal_within,
        )
    )
    if gate:
        for option, given in {
            "--out": out,
            "--save": save,
            "--strict": strict,
            "--paired": paired,
            "--equal-within": equal_within,
        }.items():
            if given:
                raise UserError(f"{option} does not go with --gate: leave it out")
        return _gate(tables, reading, min_gain, max_seeds, json)
    with _uncollected():
        found = answered(partial(judged, tables), reading, ["judge", *tables])
        out = out or Path("judged") / found.study.info.study
        check_apart([*tables, *filter(None, [decide])], out)
        written = write_judged(found.study, out)
    if save is not None:
        save_reading(save, found.reading)
    decided = None
    if decide is not None:
        from lr_sweep.analysis.judge.fresh import decided_text

        decided = decided_text(found, decide, reading.equal_within or 0.0)
    code = int(strict and written.num_problems > 0)
    if json:
        from lr_sweep.analysis.judge.write import judged_json

        streams.print_json(judged_json(found.study, written) | {"decided": decided})
        return code
    read_as, *remarks = found.study.about_table
    warnings = [line for line in remarks if line.isupper() or line.startswith("NO ") or line == SHARED_SEEDS]
    print("\n".join(textwrap.fill(line, WIDTH, break_on_hyphens=False) for line in (read_as, *warnings)))
    print(f"\n{written.text}\n")
    print("\n".join(f"  {line}" for line in remarks if line not in warnings))
    if save is not None:
        print(f"saved      {save}: give it as --columns {save}")
    if decided is not None:
        print(decided)
    print(f"report     {written.page}")
    return code


def _gate(tables: list[str], reading: Reading, min_gain: float, max_seeds: int, json: bool) -> int:
    from lr_sweep.analysis.judge.gate import gate
    from lr_sweep.sweep.cli.ask import answered

    if len(tables) != 2:
        raise UserError(f"--gate: got {counted(len(tables), 'table')}, want two, BASELINE and CANDIDATE")
    if not 0 <= min_gain < math.inf:
        raise UserError(f"--min-gain: got {min_gain:g}, want 0 or more")
    options = [f"--min-gain={min_gain:g}"] * (min_gain > 0) + [f"--max-seeds={max_seeds}"] * (max_seeds != 20)
    found = answered(
        lambda reading: gate(tables[0], tables[1], reading, min_gain=min_gain, max_seeds=max_seeds),
        reading,
        ["judge", "--gate", *tables, *options],
    )
    if json:
        streams.print_json(asdict(found))
    else:
        print("\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in found.text().splitlines()))
    return GATE_CODES[found.outcome]


def _reading(given: list[str]) -> Reading:
    """Read `learning_rate=lr,validation=val_acc`, possibly several times, and files that keep a reading."""
    from lr_sweep.analysis.judge.reading import KEPT, Reading, columns_in, saved_reading

    files = [text for text in given if text.endswith(KEPT) and ("=" not in text or Path(text).is_file())]
    kept = Reading()
    for file in files:
        kept = kept.but(saved_reading(opt.local_path(file)))
    return kept.but(Reading(columns=columns_in([text for text in given if text not in files])))


@command("--cluster cluster.yaml")
def ui(
    results: Annotated[str | None, opt.option("DIR", f"{opt.RESULTS_HELP}; default: ./results", opt.location)] = None,
    cluster: Annotated[
        Path | None, opt.option("FILE", "file given to `ray up`: open tunnels to its head", opt.local_path)
    ] = None,
    port: Annotated[
        int, opt.number("port to listen on, at this machine's loopback address", partial(opt.whole, most=65_535))
    ] = 5000,
) -> int:
    """Serve a live page of a results directory, and MLflow's, or open MLflow and Ray's page of a cluster."""
    from lr_sweep.sweep.terminal import end_by_signals

    opt.not_together(results=results, cluster=cluster)
    end_by_signals()
    if cluster is None:
        return _serve_here(opt.open_results(results or "results"), port)
    from lr_sweep.sweep.cluster.tunnels import open_tunnels

    return open_tunnels(cluster, port)


def _serve_here(results: Results, port: int) -> int:
    """Serve the live page, and MLflow's, until Ctrl-C."""
    import secrets
    from contextlib import suppress

    from lr_sweep.analysis.record.read import check_format
    from lr_sweep.common.network import check_listening
    from lr_sweep.sweep.live.guard import LOOPBACK, link
    from lr_sweep.sweep.live.server import serve
    from lr_sweep.sweep.live.state import Live
    from lr_sweep.sweep.mirror.pages import mlflow_pages

    check_format(results.root)
    token, say = secrets.token_hex(16), partial(print, flush=True)
    check_listening(LOOPBACK, port, "another program may have it: choose another with --port")
    with mlflow_pages(results.root, say, f"http://{LOOPBACK}:{port}") as pages, suppress(KeyboardInterrupt):
        say(f"live page  {link(port, token)}")
        say("Open it first: its token lets this browser read MLflow, too, which follows within 20 s. Ctrl-C ends both.")
        serve(Live(results), port, token, pages)
    return 0


@command("sync  # into $MLFLOW_TRACKING_URI, else the database in the results directory")
def mlflow(
    action: Annotated[Literal["sync"], opt.argument(None, "the only action")],
    studies: Annotated[
        opt.SomeStudies, opt.argument("STUDY", f"{opt.STUDY_HELP}; default: all that were run here")
    ] = None,
    results: opt.Results = "results",
) -> None:
    """`mlflow sync` rebuilds MLflow from the record; it fills an empty store, too."""
    from lr_sweep.sweep.mirror.sync import sync

    recorded = opt.open_results(results)
    recorded.check()
    print(sync(recorded, opt.study_names(studies, recorded)))
