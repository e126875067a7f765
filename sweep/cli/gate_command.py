"""`gate`: a change of a recipe against the accepted one."""

from __future__ import annotations

import math
import textwrap
from functools import partial
from pathlib import Path
from typing import Annotated

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli import options as opt
from lr_sweep.sweep.cli.app import command
from lr_sweep.sweep.cli.judge_command import WIDTH, answered, reading_of

CODES = {"accept": 0, "reject": 1, "run": 3, "open": 3}
"""Exit codes by decision; an error has 2."""


@command("gate baseline.json candidate.csv --stream log.jsonl")
def gate(
    baseline: Annotated[str, opt.argument("BASELINE", "What --accept wrote, or a table.", opt.location)],
    table: Annotated[
        str, opt.argument("TABLE", "The candidate's runs, as `judge` reads them, or TABLE#VARIANT.", opt.location)
    ],
    accept: Annotated[bool, opt.flag("Store the table's runs as BASELINE, for later candidates.")] = False,
    stream: Annotated[
        Path | None,
        opt.option("FILE", "Keep a log of all candidates, and limit false ones among all accepted.", opt.local_path),
    ] = None,
    guard: Annotated[
        list[str] | None,
        opt.option("METRIC", "Reject a candidate that is worse by this metric, or by a limit: memory_gb<=1.05x."),
    ] = None,
    min_gain: Annotated[
        float, opt.option("SIZE", "The least gain to look for, in percentage points, or as the metric is.")
    ] = 0.0,
    min_sd: Annotated[
        float,
        opt.number("It in standard deviations of a run, if no --min-gain.", least=0.1, most=10, metavar="SD"),
    ] = 1.5,
    max_seeds: Annotated[int, opt.number("Seeds of the candidate, at most.", least=4, most=200)] = 30,
    drift: Annotated[
        bool, opt.flag("Read a run for each night, in the order of their seeds: exit code 1 if they became worse.")
    ] = False,
    markdown: Annotated[
        Path | None, opt.option("FILE", "Append the answer as Markdown, as for a job's summary.", opt.local_path)
    ] = None,
    columns: opt.Columns = None,
    where: opt.Where = None,
    metric: opt.MetricName = None,
    lower_is_better: opt.LowerIsBetter = False,
    higher_is_better: opt.HigherIsBetter = False,
    select_on_test: opt.SelectOnTest = False,
    json: opt.Json = False,
) -> int:
    """Accept (exit code 0) or reject (1) a change of a recipe, or name the seeds to run next (3; docs/gate.md)."""
    from lr_sweep.analysis.judge.baseline import accept as store
    from lr_sweep.analysis.judge.baseline import drifted
    from lr_sweep.analysis.judge.gate import Limits
    from lr_sweep.analysis.judge.gate import gate as compare
    from lr_sweep.analysis.judge.sides import Guard

    opt.not_together(accept=accept, drift=drift)
    if not 0 <= min_gain < math.inf:
        raise UserError(f"--min-gain: got {min_gain:g}, want 0 or more")
    reading = reading_of(columns, where, metric, lower_is_better, higher_is_better, select_on_test)
    guards = [Guard.read(each) for each in guard or ()]
    values = {"min-gain": min_gain or None, "min-sd": min_sd, "max-seeds": max_seeds, "stream": stream}
    words = ["gate", baseline, table, *(f"--{name}={value}" for name, value in values.items() if value is not None)]
    words += [f"--guard={each}" for each in guard or ()]
    if accept:
        write = partial(store, opt.local_path(baseline), table, guards=guards, stream=stream)
        print(answered(write, reading, [*words, "--accept"]))
        return 0
    if drift:
        is_worse, text = answered(partial(drifted, baseline, table), reading, [*words, "--drift"])
        print(text)
        return int(is_worse)
    limits = Limits(min_gain=min_gain, min_sd=min_sd, max_seeds=max_seeds, guards=guards)
    found = answered(partial(compare, baseline, table, limits=limits, stream=stream), reading, words)
    if markdown:
        with markdown.open("a", encoding="utf-8") as file:
            file.write(found.markdown(table))
    if json:
        opt.print_json(found.as_json())
    else:
        print("\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in found.text().splitlines()))
    return CODES[found.decision]
