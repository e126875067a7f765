"""Studies whose axes are options of the protocol: optimizers, batch sizes, schedules."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.record.read import read_study
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.recorder import write_wanted
from lr_sweep.sweep.study.file import load_study, study_to_yaml
from lr_sweep.sweep.study.runs import by_cell
from lr_sweep.sweep.study.study import Study
from lr_sweep.tests.support.study_example import mistakes_in, write
from lr_sweep.tests.support.tiny_study import in_process, refused, runs_of
from lr_sweep.trainables.parts import EVERYTHING, VARIANTS
from lr_sweep.trainables.run import Protocol

# `variants` are in line 6, `axes` in line 7, `protocol` in line 10.
STUDY = """\
study: example
tasks:
  digits: {num_steps: 600}
models:
  tiny: {size: {layers: 1, heads: 2, width: 16, positions: 12}}
variants: [unfrozen-random]
axes: {optimizer: [adam, sgd], batch_size: [8, 32]}
learning_rates: {low: 1e-3, high: 1e-1, per_decade: 1}
seeds: 2
protocol: {evaluate_every: 100}
"""
AXES = "{optimizer: [adam, sgd], batch_size: [8, 32]}"
OWN = (
    "{mine: {initialisation: random, trained: [output, attention], protocol: {optimizer: sgd, momentum: 0.5}},"
    " frozen-random: {}}"
)


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


def test_every_variant_is_combined_with_every_value(tmp_path: Path) -> None:
    study = load(tmp_path)
    assert protocols(study) == {
        "unfrozen-random-adam-batch-size-8": Protocol(evaluate_every=100),
        "unfrozen-random-adam-batch-size-32": Protocol(evaluate_every=100, batch_size=32),
        "unfrozen-random-sgd-batch-size-8": Protocol(evaluate_every=100, optimizer="sgd"),
        "unfrozen-random-sgd-batch-size-32": Protocol(evaluate_every=100, optimizer="sgd", batch_size=32),
    }
    assert all(variant.trained == EVERYTHING for variant in study.variants.values())
    runs = runs_of(tmp_path / "example.yaml", tmp_path)
    assert len({run.run_id for run in runs}) == 4 * 3 * 2
    assert len(by_cell(runs)) == 4


def test_an_axis_s_value_is_the_run_that_a_study_s_protocol_gives(tmp_path: Path) -> None:
    load(tmp_path)
    ids = {
        (run.variant, run.run.learning_rate, run.run.seed): run.run_id
        for run in runs_of(tmp_path / "example.yaml", tmp_path)
    }
    for optimizer in ("adam", "sgd"):
        load(tmp_path, (f"axes: {AXES}\n", ""), ("every: 100", f"every: 100, optimizer: {optimizer}, batch_size: 8"))
        for run in runs_of(tmp_path / "example.yaml", tmp_path):
            named = f"unfrozen-random-{optimizer}-batch-size-8", run.run.learning_rate, run.run.seed
            assert ids[named] == run.run_id


@pytest.mark.parametrize("changes", [(), (("[unfrozen-random]", OWN), (AXES, "{dropout: [0, 0.1]}"))])
def test_what_is_recorded_is_written_out_and_loads_as_the_same_study(
    tmp_path: Path, changes: tuple[tuple[str, str], ...]
) -> None:
    study = load(tmp_path, *changes)
    text = study_to_yaml(study)
    assert "axes" not in text
    assert load_study(write(tmp_path, text)).plain() == study.plain()


def test_a_variant_s_own_options_are_over_the_study_s_and_under_an_axis(tmp_path: Path) -> None:
    study = load(tmp_path, ("[unfrozen-random]", OWN), (AXES, "{dropout: [0, 0.1], momentum: [0.9]}"))
    names = [f"{name}-dropout-{value}-momentum-0p9" for name in ("mine", "frozen-random") for value in ("0", "0p1")]
    found = protocols(study)
    assert list(found) == names
    assert found[names[0]] == Protocol(evaluate_every=100, optimizer="sgd", dropout=0)
    assert found[names[3]] == Protocol(evaluate_every=100)
    own = load(tmp_path, ("[unfrozen-random]", OWN), (f"axes: {AXES}\n", ""))
    assert protocols(own)["mine"] == Protocol(evaluate_every=100, optimizer="sgd", momentum=0.5)
    assert own.variants["frozen-random"] == VARIANTS["frozen-random"]


def test_a_run_with_a_decaying_schedule_is_of_its_step_budget(tmp_path: Path) -> None:
    schedules = (AXES, "{schedule: [constant, cosine, warmup-stable-decay]}")
    ids = []
    for num_steps in (600, 1200):
        load(tmp_path, schedules, ("num_steps: 600", f"num_steps: {num_steps}"))
        runs = runs_of(tmp_path / "example.yaml", tmp_path)
        ids.append({(run.variant, run.run.learning_rate, run.run.seed): run.run_id for run in runs})
        expected = {"constant": None, "cosine": num_steps, "warmup-stable-decay": num_steps}
        assert {run.run.protocol.schedule: run.run.schedule_steps for run in runs} == expected
    same = {name for name, *_ in ids[0]} - {cell[0] for cell in ids[0] if ids[0][cell] != ids[1][cell]}
    assert same == {"unfrozen-random-constant"}


def test_all_mistakes_in_axes_and_variants_are_reported_at_once(tmp_path: Path) -> None:
    axes = "{batch_siz: [8], optimizer: [adam, sdg], dropout: 3, weight_decay: [0, 0], precision: [tf32], seed: [1]}"
    found = mistakes(tmp_path, (AXES, axes), ("[unfrozen-random]", OWN.replace("0.5", "1.5")))
    assert [line.split("; ")[0] for line in found] == [
        "6: variants.mine.protocol.momentum: got 1.5, want less than 1",
        "7: axes.batch_siz: unknown option 'batch_siz'",
        "7: axes.dropout: got 3, want a list of values",
        "7: axes.optimizer[1]: got \"sdg\", want 'adam', 'adamw', 'sgd', 'lion' or 'muon'",
        "7: axes.precision[0]: holds for a whole study",
        found[-2].split("; ")[0],
        "7: axes.weight_decay[1]: 0 is there twice",
    ]
    assert found[-2].startswith("7: axes.seed: unknown option 'seed'")
    assert "did you mean 'batch_size'?" in found[1]
    assert mistakes(tmp_path, (AXES, "[adam]")) == [
        '7: axes: got ["adam"], want a mapping of the protocol\'s options to lists of values'
    ]


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (AXES, "{optimizer: [{a: 1}]}", "7: axes.optimizer[0]: got {\"a\": 1}, want 'adam', "),
        (AXES, "{optimizer: []}", "7: axes.optimizer: want at least one entry"),
        ("[unfrozen-random]", "{a: 3}", "6: variants.a: got 3, want a mapping"),
        ("variants: [unfrozen-random]\n", "", "1: variants: missing"),
    ],
)
def test_what_is_no_value_of_an_axis_is_refused_beside_any_other_mistake(
    tmp_path: Path, old: str, new: str, wanted: str
) -> None:
    assert any(line.startswith(wanted) for line in mistakes(tmp_path, (old, new)))


def test_options_that_do_not_go_together_are_refused_where_they_are_given(tmp_path: Path) -> None:
    own = "{frozen-random: {}, mine: {initialisation: random, trained: [output], protocol: {optimizer: muon}}}"
    changes = [("[unfrozen-random]", own), (f"axes: {AXES}\n", "")]
    options = "every: 100, momentum: 0.5, lion_beta1: 0.5, decay_fraction: 0.5, warmup_steps: 601"
    of_mine = [
        *unread("muon"),
        "optimizer: muon trains matrices of attention and feedforward, which are frozen; want another optimizer",
        "warmup_steps: 601 leave no room for the schedule in 600 steps; want fewer",
    ]
    assert mistakes(tmp_path, *changes, ("every: 100", options)) == [
        *(f"6: variants.mine: {line} (digits, mine)" for line in of_mine),
        *(f"9: protocol: {line} (digits, frozen-random)" for line in [*unread("adam"), of_mine[-1]]),
    ]
    alone = [(own, "[unfrozen-random]"), ("every: 100", "every: 100, momentum: 0.5")]
    assert mistakes(tmp_path, *changes, *alone) == [f"9: protocol: {unread('adam')[-1]}"]


def unread(optimizer: str) -> list[str]:
    return [
        "decay_fraction: 0.5 has no effect with schedule: constant; leave it out, or want schedule: "
        "warmup-stable-decay",
        f"lion_beta1: 0.5 has no effect with optimizer: {optimizer}; leave it out, or want optimizer: lion",
        f"momentum: 0.5 has no effect with optimizer: {optimizer}; leave it out, or want optimizer: sgd",
    ]


def test_what_mup_has_no_rule_for_is_refused(tmp_path: Path) -> None:
    axes = "{optimizer: [sgd, adam, adamw], weight_decay: [0, 0.1]}"
    found = mistakes(tmp_path, (AXES, axes), ("every: 100", "every: 100, parametrization: mup"))
    sgd = "parametrization: mup has no rule for optimizer: sgd; want adam, adamw or lion"
    adam = "weight_decay: mup has no rule for that of adam, which is in the gradient; want 0, or optimizer: adamw"
    assert [line.partition(": variants.unfrozen-random-")[2] for line in found] == [
        f"adam-weight-decay-0p1: {adam} (digits, unfrozen-random-adam-weight-decay-0p1)",
        f"sgd-weight-decay-0: {sgd} (digits, unfrozen-random-sgd-weight-decay-0)",
        f"sgd-weight-decay-0p1: {sgd} (digits, unfrozen-random-sgd-weight-decay-0p1)",
    ]
    lstm = ("size: {layers: 1, heads: 2, width: 16, positions: 12}", "family: lstm, size: {layers: 1, width: 16}")
    changes = [(f"axes: {AXES}\n", ""), lstm, ("every: 100", "every: 100, parametrization: mup")]
    assert mistakes(tmp_path, *changes) == [
        "9: protocol: parametrization: mup is there for gpt2 alone, got a lstm; want standard"
    ]


def test_batches_and_budgets_are_checked_for_each_value(tmp_path: Path) -> None:
    found = mistakes(tmp_path, (AXES, "{batch_size: [8, 1198], evaluate_every: [100, 250]}"))
    assert all(line.startswith("6: variants.unfrozen-random-batch-size-") for line in found)
    assert sum("batch_size: the training split has 1197 examples; want that or less" in line for line in found) == 2
    assert sum("evaluate_every: 600 steps are no multiple of 250" in line for line in found) == 2
    assert len(found) == 4


def test_the_plan_of_optimizer_by_learning_rate(tmp_path: Path) -> None:
    load(tmp_path, (AXES, "{optimizer: [adam, muon]}"))
    lines = in_process("plan", tmp_path / "example.yaml", "--results", tmp_path / "results")[1].splitlines()
    assert "grid       1 task x 1 model x 2 variants x 3 learning rates x 2 seeds = 12 runs" in lines
    assert [line.split()[2:4] for line in lines if line.startswith("digits")] == [
        ["unfrozen-random-adam", "6"],
        ["unfrozen-random-muon", "6"],
    ]
    assert "engine     plain for unfrozen-random-muon: only the plain engine has Muon" in lines


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


def test_an_axis_of_step_budgets(tmp_path: Path) -> None:
    """Each budget is a variant, whose runs are others: their schedule ends with it."""
    load(tmp_path, (AXES, "{num_steps: [200, 600]}"), ("every: 100", "every: 100, schedule: cosine"))
    wanted = runs_of(tmp_path / "example.yaml", tmp_path)
    assert {run.variant: run.num_steps for run in wanted} == {
        "unfrozen-random-num-steps-200": 200,
        "unfrozen-random-num-steps-600": 600,
    }
    assert {run.num_steps: run.run.content()["schedule_steps"] for run in wanted} == {200: 200, 600: 600}
    assert len({run.run_id for run in wanted}) == len(wanted)


def test_budgets_that_make_no_other_runs_are_refused(tmp_path: Path) -> None:
    assert mistakes(tmp_path, (AXES, "{num_steps: [150, 600]}"))[-2:] == [
        "10: protocol: evaluate_every: 150 steps are no multiple of 100 (digits, unfrozen-random-num-steps-150)",
        "10: protocol: num_steps: has no effect on runs with schedule: constant; want schedule: cosine or "
        "warmup-stable-decay",
    ]
    assert "num_steps[0]: got 0, want greater than or equal to 1" in mistakes(tmp_path, (AXES, "{num_steps: [0]}"))[-1]


def test_lora_is_refused_with_what_to_use_instead_but_where_it_changed_nothing(tmp_path: Path) -> None:
    """A study that an earlier version recorded has every option."""
    mine, axes = "{mine: {initialisation: random, trained: [input, lora, output]}}", f"axes: {AXES}\n"
    found = [
        *mistakes(tmp_path, ("[unfrozen-random]", mine)),
        *mistakes(tmp_path, ("every: 100", "every: 100, lora_rank: 4"), (axes, "")),
        *mistakes(tmp_path, (AXES, "{lora_rank: [8, 4]}")),
    ]
    assert len(found) == 3
    assert all("docs/examples/lora_books.py" in each for each in found)
    assert "docs/examples/lora_books.py" in refused("plan", "lora-digits")
    recorded = load(tmp_path, ("every: 100", "every: 100, lora_rank: 8, lora_alpha: 8.0"))
    assert recorded == load(tmp_path)
