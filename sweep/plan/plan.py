"""`plan`: what `run` would do and what that costs, as text. Starts nothing, fetches nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sized
from math import comb
from pathlib import Path
from typing import Any

from lr_sweep.analysis.record.study import Fresh
from lr_sweep.common.files import Fields
from lr_sweep.common.text import counted, fitted, gigabytes, rate_text, study_heading
from lr_sweep.sweep.results.changes import change_lines, replaced_by
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import State, counts_json
from lr_sweep.sweep.search.state import StudyState
from lr_sweep.sweep.study.backbones import Backbone, find_backbones, is_unknown, to_pretrain
from lr_sweep.sweep.study.only import ALL_RUNS, Only
from lr_sweep.sweep.study.runs import Cell, by_cell, fresh_allowed, grids_of
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.run import engine_for, engine_of

from .cost import Cost, cost_text, disk_bytes, estimate_cost
from .placement import Placement, check_device, described, fits, idle_gpu


class Plan:
    """A study beside what is recorded of it; `UserError` if trials on this device cannot train it."""

    def __init__(
        self,
        study: Study,
        placement: Placement,
        results: Results,
        data_dir: Path,
        only: Only = ALL_RUNS,
        noise: float | None = None,
    ) -> None:
        check_device(placement, study.for_gpus)
        self.study, self.placement = study, placement
        self.results, self.data_dir = results, data_dir
        self.backbones = find_backbones(study, results.pretrained, data_dir)
        self.state = StudyState(study, self.backbones, results, data_dir, only=only)
        self.reconciled = self.state.expected(self._most_fresh())
        self.wanted = self.reconciled.wanted
        variants = Counter(cell[:2] for cell in grids_of(study))
        self.num_pairs = sum(comb(number, 2) for number in variants.values())
        self.finds = self._finds(noise)

    def _finds(self, noise: float | None) -> list[Fields]:
        if not self.num_pairs or (noise is None and not self.results.exists()):
            return []
        from .finds import finds  # imported late, as pandas is

        return finds(self.study, self.results, self.num_pairs, noise)

    def _most_fresh(self) -> Mapping[Cell, int]:
        """Return how many fresh seeds each cell may get; a cell whose pairs are decided gets no more than it has."""
        allowed = fresh_allowed(self.study)
        is_choosing = len(self.state.expected({}).wanted) > len(self.state.wanted)
        if not allowed or is_choosing or not self.results.exists():
            return allowed
        from lr_sweep.sweep.search.rounds import most_fresh  # imported late, as pandas is

        return most_fresh(self.state)


def plan_on(plan: Plan, machine: dict[str, float]) -> str:
    """Return the plan for a machine (`devices_here`), with its cost by what was recorded and measured."""
    text = plan_text(plan, cost_on(plan, machine))
    if not plan.reconciled.to_train or fits(plan.placement, [machine]):
        return text
    return (
        f"{text}\nnote       `run` would refuse this: a trial asks for {described(plan.placement.trial)}, and the "
        f"machine planned for has {described(machine)}. Plan for another with --cpus and --gpus, or ask for less in "
        f"the study's `resources` or with --gpus-per-trial."
    )


def cost_on(plan: Plan, machine: dict[str, float]) -> Cost:
    """Return what a plan costs on a machine."""
    return estimate_cost(
        plan.reconciled, plan.placement, plan.placement.trials_at_once([machine]), plan.results
    )


def plan_json(plan: Plan, cost: Cost) -> dict[str, Any]:
    """Return a plan as content for JSON."""
    to_train = plan.reconciled.to_train
    return {
        "study": plan.study.study,
        "title": plan.study.title,
        "results": plan.results.location,
        "runs": counts_json(plan.reconciled.counts()),
        "to_train": len(to_train),
        "num_trials": cost.num_trials,
        "num_steps": sum(run.num_steps for run in to_train),
        "cells": _cells_json(plan),
        "finds": plan.finds,
        "device": cost.device,
        "device_s": cost.device_s or None,
        "wall_s": cost.wall_s or None,
        "not_timed": [list(cell) for cell in cost.not_timed],
    }


def plan_text(plan: Plan, cost: Cost) -> str:
    """Return the plan for the terminal."""
    lines = [
        study_heading(plan.study.study, plan.study.title),
        "",
        *_grid_lines(plan),
        "",
        *_cell_lines(plan),
        "",
    ]
    to_train, processes = plan.reconciled.to_train, plan.study.resources.processes_per_run
    of = f", of {processes} processes that train a run together" if processes > 1 else ""
    lines += [
        *_weights_lines(plan.backbones),
        f"runs       {len(plan.wanted)} wanted: {state_counts(plan.reconciled.counts())}",
        f"to train   {counted(len(to_train), 'run')} in {counted(cost.num_trials, 'trial')}, "
        f"at most {sum(run.num_steps for run in to_train):,} gradient steps",
        f"resources  {described(plan.placement.trial)} a trial{of}",
        *(f"{'':11}{line}" for line in idle_gpu(plan.placement)),
        *_engine_lines(plan),
    ]
    lines += [
        *_fact("changed", _changed_lines(plan)),
        _disk_line(plan, cost),
        f"data       {plan.data_dir}",
        f"results    {plan.results.location}",
    ]
    return "\n".join([*lines, "", cost_text(cost)])


def _fact(name: str, lines: Iterable[str]) -> list[str]:
    return [f"{'' if index else name:11}{line}" for index, line in enumerate(lines)]


def _changed_lines(plan: Plan) -> Iterator[str]:
    yield from change_lines(plan.reconciled, plan.results)
    if (line := replaced_by(plan.study, plan.wanted, plan.results).line) is not None:
        yield line


def _grid_lines(plan: Plan) -> list[str]:
    study, seeds, num_cells = plan.study, plan.study.seed_list(), len(by_cell(plan.wanted))
    proposed = sum(len(cell.rates) for cell in plan.state.proposed.values())
    unknown = "proposed so far; the others are counted, and not known yet"
    if study.search is not None:
        lines = [
            f"search     {study.search.text()}; {counted(num_cells, 'cell')} and {counted(len(seeds), 'seed')}: "
            f"{counted(len(plan.wanted), 'run')}",
            f"rates      {proposed} of {num_cells * study.search.rates} {unknown}",
        ]
    else:
        rates = study.learning_rate_grid()
        axes: tuple[Sized, ...] = (study.tasks, study.models, study.variants, rates, seeds)
        names = ("task", "model", "variant", "learning rate", "seed")
        factors = " x ".join(
            counted(len(axis), name) for axis, name in zip(axes, names, strict=True)
        )
        number = counted(len(seeds) * sum(map(len, grids_of(study).values())), "run")
        lines = [
            f"grid       {factors} = {number}"
            if study.cells is None
            else f"grid       {number} of {factors}",
            f"rates      {', '.join(map(rate_text, rates))}",
        ]
    lines.append(f"seeds      {', '.join(map(str, seeds))}")
    if study.refine is not None:
        more = f"{counted(study.refine, 'learning rate')} more a cell, after its grid"
        lines.append(f"refine     {more}; {proposed} of {study.refine * num_cells} {unknown}")
    if study.winners is not None:
        chosen = sum(len(cell.winners or ()) for cell in plan.state.proposed.values())
        what = f"{counted(study.winners, 'learning rate')} a cell with all seeds, the best by the first one"
        so_far = f"{chosen} of {study.winners * num_cells} chosen so far"
        lines.append(f"winners    {what}; {so_far}; {counted(len(plan.wanted), 'run')} in all")
    if study.fresh is not None:
        lines.append(_fresh_line(plan, study.fresh))
    if study.stop_early is not None:
        most = "what follows counts every run in full, which is the most that it can be"
        lines.append(f"stops      {study.stop_early}; {most}")
    return lines + _fact("finds", _finds_lines(plan))


def _fresh_line(plan: Plan, fresh: Fresh) -> str:
    cells = len(grids_of(plan.study))
    seeds = (
        f"up to {fresh.max} fresh seeds, until each pair is decided"
        if fresh.until_decided
        else f"{fresh.max} fresh seeds"
    )
    runs = f"{'at most ' if fresh.until_decided else ''}{counted(cells * fresh.max, 'run')}"
    return f"fresh      {seeds}, at the chosen rate of {counted(cells, 'cell')}: {runs}"


def _finds_lines(plan: Plan) -> list[str]:
    if not plan.num_pairs:
        return []
    if not plan.finds:
        return ["not known without runs of this task and model, or `plan --noise SD`"]
    from .finds import finds_lines

    return finds_lines(plan.study, plan.finds)


def _cells_json(plan: Plan) -> list[dict[str, Any]]:
    to_train, rows = Counter(run.cell for run in plan.reconciled.to_train), []
    for cell, runs in by_cell(plan.wanted).items():
        done = sum(plan.reconciled.states[run.run_id].over for run in runs)
        labels = dict(zip(("task", "model", "variant"), cell, strict=True))
        numbers = {
            "runs": len(runs),
            "steps": runs[0].num_steps,
            "parameters": runs[0].trained_parameters,
        }
        rows.append({**labels, **numbers, "done": done, "left": to_train[cell]})
    return rows


def _cell_lines(plan: Plan) -> list[str]:
    cells = _cells_json(plan)
    rows = [tuple(cells[0])]
    for cell in cells:
        number = cell["parameters"]
        cell["parameters"] = "-" if number is None else f"{number:,}"
        rows.append(tuple(map(str, cell.values())))
    return fitted(rows, 3, right=range(3, 8))


def _weights_lines(backbones: Mapping[str, Backbone]) -> list[str]:
    lines = []
    for name, backbone in backbones.items():
        where = "here" if backbone.here else "not here yet; `run` gets or trains them first"
        lines.append(f"weights    {name}: {backbone.description} ({where})")
        if is_unknown(backbone.checksum):
            lines.append(
                "           the ids of its pretrained runs depend on these weights: not known yet"
            )
    return lines


def _engine_lines(plan: Plan) -> list[str]:
    """Return lines that name the models and variants which the wanted engine does not train, if there are any."""
    if plan.study.files is not None:
        files = plan.study.files
        anew = files.command and not files.command.resumes
        lines = [f"{files.trainable} of {', '.join(files.code) or 'no file'}"]
        lines += ["without {checkpoint}, so interrupted runs are trained anew"] if anew else []
        return _fact("command" if files.command else "function", lines)
    wanted, bodies = plan.study.resources.engine, plan.study.bodies
    plain = dict.fromkeys(
        run.variant if engine_for(bodies[run.model].size, wanted) == wanted else run.model
        for run in plan.wanted
        if engine_of(run.run, wanted) != wanted
    )
    if not plain:
        return []
    why = "the stacked engine trains GPT-2, not with Muon, nor an output layer without dropout"
    return _fact("engine", [f"plain for {', '.join(plain)}: {why}"])


def _disk_line(plan: Plan, cost: Cost) -> str:
    models = to_pretrain(plan.study, plan.backbones)
    needed, free = (
        disk_bytes(plan.reconciled.to_train, cost.at_once, models),
        plan.results.free_bytes(),
    )
    line = f"disk       about {gigabytes(needed)} for {'weights, ' if models else ''}checkpoints and record"
    if plan.results.uri is not None:  # a store has no limit
        return line
    return f"{line}, {gigabytes(free)} free{': not enough' if needed > free else ''}"


def state_counts(counts: Counter[State]) -> str:
    """Return `3 complete, 9 new`."""
    return (
        ", ".join(f"{counts[state]} {_word(state)}" for state in State if counts[state]) or "none"
    )


def _word(state: State) -> str:
    return "new" if state is State.WAITING else state.value
