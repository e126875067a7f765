"""`gate`: a change of a recipe against the accepted one."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

from lr_sweep.common.network import shown_uri
from lr_sweep.sweep.cli import options as opt

from .app import command
from .judge_command import named, reading_of

CODES = {"accept": 0, "reject": 1, "run": 3, "open": 3}
"""Exit codes by decision; an error has 2."""
MOST = 1e30
"""Largest gain that may be looked for; its square is a float, too."""


@command("gate baseline.json candidate.csv --stream log.jsonl")
def gate(
    baseline: Annotated[Path, opt.argument("BASELINE", "What --accept wrote.", opt.local_path)],
    table: Annotated[
        str, opt.argument("TABLE", "The candidate's runs, as `judge` reads them.", opt.location)
    ],
    accept: Annotated[
        bool, opt.flag("Store the table's runs as BASELINE, for later candidates.")
    ] = False,
    stream: Annotated[
        Path | None,
        opt.option(
            "FILE",
            "Keep a log of all candidates, and limit false ones among all accepted.",
            opt.local_path,
        ),
    ] = None,
    guard: Annotated[
        list[str] | None,
        opt.option(
            "METRIC",
            "Reject a candidate that is worse by this metric, or by a limit: memory_gb<=1.05x.",
        ),
    ] = None,
    min_gain: Annotated[
        float,
        opt.number(
            "Least gain to look for, in percentage points, or as the metric is.",
            least=0,
            most=MOST,
            metavar="SIZE",
        ),
    ] = 0.0,
    min_sd: Annotated[
        float,
        opt.number(
            "Least gain in standard deviations of a run, if no --min-gain.",
            least=0.1,
            most=MOST,
            metavar="SD",
        ),
    ] = 1.5,
    max_seeds: Annotated[
        int, opt.number("Seeds of a candidate that is accepted.", least=20, most=200)
    ] = 30,
    drift: Annotated[
        bool,
        opt.flag(
            "Read a run for each night, in the order of their seeds: exit code 1 if they became worse."
        ),
    ] = False,
    columns: opt.Columns = None,
    where: opt.Where = None,
    lower_is_better: opt.LowerIsBetter = False,
    higher_is_better: opt.HigherIsBetter = False,
    json: opt.Json = False,
) -> int:
    """Accept (exit code 0) or reject (1) a change of a recipe, or name the seeds to run next (3; docs/gate.md)."""
    from lr_sweep.analysis.judge.gate import Comparison
    from lr_sweep.analysis.judge.sides import Guard, read_side, stored_side
    from lr_sweep.analysis.judge.stream import refuse_accepted

    opt.not_together(accept=accept, drift=drift)
    guards = [Guard.read(text) for text in guard or ()]
    reading = reading_of(columns, where, lower_is_better, higher_is_better)
    words = ["gate", str(baseline), shown_uri(table), *["--accept"] * accept]
    candidate = named(partial(read_side, table, reading, guards), words, json=json)
    if accept:
        refuse_accepted(stream, candidate)
        candidate.store(baseline)
        opt.say(candidate.text(str(baseline)))
        return 0
    compared = Comparison(stored_side(baseline), candidate, guards, min_gain, min_sd, max_seeds)
    if drift:
        text = compared.drift_text()
        opt.say(text or "no drift")
        return int(bool(text))
    verdict = (
        compared.streamed(stream, " ".join([shown_uri(table), *(where or ())]))
        if stream
        else compared.gate()
    )
    if json:
        opt.print_json({"format": 1, **asdict(verdict)})
    else:
        opt.say(verdict.text())
    return CODES[verdict.decision]
