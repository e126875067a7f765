"""Variants whose protocols differ: optimizers, batch sizes, schedules, step budgets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lr_sweep.analysis.record.read import read_study
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.recorder import write_wanted
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.study import Study
from lr_sweep.tests.support.study_example import mistakes_in, write
from lr_sweep.tests.support.tiny_study import in_process, runs_of
from lr_sweep.trainables.parts import VARIANTS
from lr_sweep.trainables.run import Protocol

# `variants` are in line 6, `protocol` in line 9.
STUDY = """\
study: example
tasks:
  digits: {num_steps: 600}
models:
  tiny: {size: {layers: 1, heads: 2, width: 16, positions: 12}}
variants: [unfrozen-random]
learning_rates: {low: 1e-3, high: 1e-1, per_decade: 1}
seeds: 2
protocol: {evaluate_every: 100}
"""
OWN = (
    "{mine: {initialisation: random, trained: [output, attention], protocol: {optimizer: sgd, weight_decay: 0.5}},"
    " frozen-random: {}}"
)


def variants(**protocols: str) -> tuple[str, str]:
    """Return the change of the study to variants of these names, which train everything, with their own options."""
    parts = "initialisation: random, trained: [attention, feedforward, input, layer_norms, output, positions]"
    entries = (f"{name}: {{{parts}, protocol: {{{options}}}}}" for name, options in protocols.items())
    return "[unfrozen-random]", f"{{{', '.join(entries)}}}"


def written(folder: Path, *changes: tuple[str, str]) -> Path:
    text = STUDY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return write(folder, text)


def load(folder: Path, *changes: tuple[str, str]) -> Study:
    return load_study(written(folder, *changes))


def mistakes(folder: Path, *changes: tuple[str, str]) -> list[str]:
    return mistakes_in(written(folder, *changes))


def protocols(study: Study) -> dict[str, Protocol]:
    return {cell.variant: cell.protocol for cell in study.cell_list()}


def test_a_variant_s_option_is_the_run_that_a_study_s_protocol_gives(tmp_path: Path) -> None:
    load(tmp_path, variants(sgd="optimizer: sgd, batch_size: 32"))
    ids = [run.run_id for run in runs_of(tmp_path / "example.yaml", tmp_path)]
    load(tmp_path, ("every: 100", "every: 100, optimizer: sgd, batch_size: 32"))
    assert [run.run_id for run in runs_of(tmp_path / "example.yaml", tmp_path)] == ids


def test_a_variant_s_own_options_are_over_the_study_s(tmp_path: Path) -> None:
    study = load(tmp_path, ("[unfrozen-random]", OWN), ("every: 100", "every: 100, batch_size: 32, dropout: 0"))
    shared = Protocol(evaluate_every=100, batch_size=32, dropout=0)
    own = replace(shared, optimizer="sgd", weight_decay=0.5)
    assert protocols(study) == {"mine": own, "frozen-random": shared}
    assert study.variants["frozen-random"] == VARIANTS["frozen-random"]
    assert study.variants["mine"].trained == ("attention", "output")  # in their order, whatever the file's


def test_axes_of_earlier_versions_are_refused_with_what_to_write(tmp_path: Path) -> None:
    (line,) = mistakes(tmp_path, ("seeds: 2", "seeds: 2\naxes: {optimizer: [adam, sgd]}"))
    assert line.startswith("9: axes: gone: list each combination in `variants`, such as `sgd: {")


def test_a_run_with_a_decaying_schedule_is_of_its_step_budget(tmp_path: Path) -> None:
    names = {"constant": "constant", "cosine": "cosine", "decay": "warmup-stable-decay"}
    schedules = variants(**{name: f"schedule: {schedule}" for name, schedule in names.items()})
    ids = []
    for num_steps in (600, 1200):
        load(tmp_path, schedules, ("num_steps: 600", f"num_steps: {num_steps}"))
        runs = runs_of(tmp_path / "example.yaml", tmp_path)
        ids.append({(run.variant, run.run.learning_rate, run.run.seed): run.run_id for run in runs})
        expected = {"constant": None, "cosine": num_steps, "warmup-stable-decay": num_steps}
        assert {run.run.protocol.schedule: run.run.schedule_steps for run in runs} == expected
    same = {name for name, *_ in ids[0]} - {cell[0] for cell in ids[0] if ids[0][cell] != ids[1][cell]}
    assert same == {"constant"}


def test_all_mistakes_in_variants_are_reported_at_once(tmp_path: Path) -> None:
    own = variants(a="num_steps: 0, batch_siz: 8", b="precision: tf32")[1].replace("{a:", "{z: 3, a:")
    found = mistakes(tmp_path, ("[unfrozen-random]", own))
    assert [line.split("; ")[0] for line in found] == [
        "6: variants.a.protocol.batch_siz: unknown key 'batch_siz'",
        "6: variants.a.protocol.num_steps: got 0, want greater than or equal to 1",
        "6: variants.b.protocol.precision: holds for a whole study",
        "6: variants.z: got 3, want a mapping of keys to values, {} for none",
    ]
    assert "1: variants: missing" in mistakes(tmp_path, ("variants: [unfrozen-random]\n", ""))[0]


def test_options_that_do_not_go_together_are_refused_where_they_are_given(tmp_path: Path) -> None:
    own = "{frozen-random: {}, mine: {initialisation: random, trained: [output], protocol: {optimizer: muon}}}"
    changes = [("[unfrozen-random]", own)]
    of_mine = [
        "optimizer: muon trains matrices of attention and feedforward, which are frozen; want another optimizer",
        "warmup_steps: 601 leave no room for the schedule in 600 steps; want fewer",
    ]
    assert mistakes(tmp_path, *changes, ("every: 100", "every: 100, warmup_steps: 601")) == [
        *(f"6: variants.mine: {line} (digits, mine)" for line in of_mine),
        f"9: protocol: {of_mine[-1]} (digits, frozen-random)",
    ]
    alone = [(own, "[unfrozen-random]"), ("every: 100", "every: 100, warmup_steps: 601")]
    assert mistakes(tmp_path, *changes, *alone) == [f"9: protocol: {of_mine[-1]}"]


def test_what_mup_has_no_rule_for_is_refused(tmp_path: Path) -> None:
    mup = ("every: 100", "every: 100, parametrization: mup")
    decays = {"adam": "weight_decay: 0.1", "adamw": "optimizer: adamw, weight_decay: 0.1", "sgd": "optimizer: sgd"}
    sgd = "parametrization: mup has no rule for optimizer: sgd; want adam, adamw or lion"
    adam = "weight_decay: mup has no rule for that of adam, which is in the gradient; want 0, or optimizer: adamw"
    assert mistakes(tmp_path, variants(**decays), mup) == [
        f"6: variants.adam: {adam} (digits, adam)",
        f"6: variants.sgd: {sgd} (digits, sgd)",
    ]
    lstm = ("size: {layers: 1, heads: 2, width: 16, positions: 12}", "family: lstm, size: {layers: 1, width: 16}")
    assert mistakes(tmp_path, lstm, mup) == [
        "9: protocol: parametrization: mup is there for gpt2 alone, got a lstm; want standard"
    ]


def test_batches_and_evaluations_are_checked_for_each_variant(tmp_path: Path) -> None:
    assert mistakes(
        tmp_path, variants(batch="batch_size: 1198", fit="batch_size: 1197", seldom="evaluate_every: 250")
    ) == [
        "6: variants.batch: batch_size: the training split has 1197 examples; want that or less (digits, batch)",
        "6: variants.seldom: evaluate_every: 600 steps are no multiple of 250 (digits, seldom)",
    ]


def test_the_plan_of_optimizer_by_learning_rate(tmp_path: Path) -> None:
    load(tmp_path, variants(adam="optimizer: adam", muon="optimizer: muon"))
    lines = in_process("plan", tmp_path / "example.yaml", "--results", tmp_path / "results")[1].splitlines()
    assert "grid       1 task x 1 model x 2 variants x 3 learning rates x 2 seeds = 12 runs" in lines
    assert [line.split()[2:4] for line in lines if line.startswith("digits")] == [
        ["adam", "6"],
        ["muon", "6"],
    ]
    assert [line[11:25] for line in lines if line.startswith("engine")] == ["plain for muon"]


def test_final_models_are_evaluated_on_test(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="selection: final: got it with test_evaluated: best, which leaves out"):
        load(tmp_path, ("{evaluate_every: 100}", "{evaluate_every: 100, test_evaluated: best}\nselection: final"))


def test_the_selection_of_final_models_is_recorded_with_the_study(tmp_path: Path) -> None:
    for selection in ("best", "final"):
        study = load(tmp_path, ("seeds: 2", f"seeds: 2\nselection: {selection}"))
        results = Results(tmp_path / "results")
        write_wanted(results, study, runs_of(tmp_path / "example.yaml", results.root))
        assert read_study(results.root, "example").metric.model == selection
        assert ("selection" in (results.study("example") / "study.json").read_text()) == (selection == "final")


def test_a_variant_s_own_step_budget(tmp_path: Path) -> None:
    """Runs of each budget are others: their schedule ends with it."""
    load(
        tmp_path,
        variants(short="num_steps: 200", long="num_steps: 600"),
        ("every: 100", "every: 100, schedule: cosine"),
    )
    wanted = runs_of(tmp_path / "example.yaml", tmp_path)
    assert {run.variant: run.num_steps for run in wanted} == {"short": 200, "long": 600}
    assert {run.num_steps: run.run.content()["schedule_steps"] for run in wanted} == {200: 200, 600: 600}
    assert len({run.run_id for run in wanted}) == len(wanted)


def test_budgets_that_make_no_other_runs_are_refused(tmp_path: Path) -> None:
    unread = "num_steps: has no effect on runs with schedule: constant; want schedule: cosine or warmup-stable-decay"
    assert mistakes(tmp_path, variants(short="num_steps: 150", long="num_steps: 600")) == [
        f"6: variants.long: {unread} (digits, long)",
        "6: variants.short: evaluate_every: 150 steps are no multiple of 100 (digits, short)",
        f"6: variants.short: {unread} (digits, short)",
    ]


def test_options_of_earlier_versions_are_accepted_where_they_changed_nothing(tmp_path: Path) -> None:
    """A study that an earlier version recorded has every option."""
    assert load(tmp_path, ("every: 100", "every: 100, lora_rank: 8, lora_alpha: 8.0")) == load(tmp_path)
    assert len(mistakes(tmp_path, ("every: 100", "every: 100, lora_rank: 4"))) == 1


def test_options_that_a_study_cannot_change_are_accepted_as_they_are(tmp_path: Path) -> None:
    recorded = ("every: 100", "every: 100, momentum: 0.9, readout: final_position, attention: null")
    assert load(tmp_path, recorded) == load(tmp_path)
    assert mistakes(tmp_path, ("every: 100", "every: 100, momentum: 0.5"), ("seeds: 2", "seeds: x")) == [
        '8: seeds: got "x", want a whole number n, for seeds 0 to n - 1, or a list of seeds',
        "9: protocol.momentum: got 0.5, but is always 0.9; leave it out",
    ]
