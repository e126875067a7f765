"""The gate: which seeds count, what it says of known gains, and that candidates without a gain seldom pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lr_sweep.analysis.judge.gate import Gate, Limits, gate
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.statistics.comparisons.sequential import FALSE_ACCEPT
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli.parser import main

RATES = (1e-3, 1e-2, 1e-1)
NOISE = (0.3, -0.5, 0.2, 0.1, -0.4, 0.3, 0.0, -0.2, 0.4, -0.1, 0.2, -0.3) * 3
"""Of seeds, in points."""


def sweep(path: Path, best: float, fresh: int = 0, at: float = 1e-2) -> Path:
    """Write a sweep of three seeds, best in the middle, and fresh seeds from 3 on at one rate; points above 50."""
    rows = [(rate, seed) for rate in RATES for seed in range(3)] + [(at, 3 + i) for i in range(fresh)]
    text = "lr,seed,val_acc,test_acc\n"
    for rate, seed in rows:
        value = 50 + best - 5 * abs(math.log10(rate) + 2) + NOISE[seed]
        text += f"{rate},{seed},{value:.3f},{value:.3f}\n"
    path.write_text(text)
    return path


def finals(path: Path, values: Sequence[float | str], extra: str = "") -> Path:
    """Write final runs, without a rate."""
    path.write_text("seed,val_acc\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values)) + extra)
    return path


def judged(tmp_path: Path, gain: float, fresh: tuple[int, int], **limits: float) -> Gate:
    sides = sweep(tmp_path / "base.csv", 0, fresh[0]), sweep(tmp_path / "cand.csv", gain, fresh[1])
    return gate(*sides, Reading(), Limits(**limits))  # type: ignore[arg-type]


def test_seeds_that_chose_the_rate_do_not_count(tmp_path: Path) -> None:
    found = judged(tmp_path, 30.0, (9, 0))  # so large a gain would pass if they did
    assert (found.decision, found.seeds, found.more) == ("run", {"candidate": range(3, 5)}, None)
    assert found.text().startswith("run seeds 3 to 4 of the candidate: it is open whether the candidate is better")
    assert "candidate: learning rate 1e-2, chosen from 3 by seeds 0 to 2; 0 fresh seeds" in found.about
    assert judged(tmp_path, 30.0, (7, 16)).seeds == {"baseline": range(10, 33)}  # eight are needed


def test_a_gain_is_accepted_and_a_loss_rejected(tmp_path: Path) -> None:
    won, lost = judged(tmp_path, 3.0, (9, 16)), judged(tmp_path, -3.0, (9, 1))
    assert (won.decision, won.seeds, lost.decision) == ("accept", {}, "reject")
    assert "is better: it gains 3.00 points in test accuracy (95% interval 2.73 to 3.27)" in won.why
    assert lost.why.startswith("a gain of 1.5 standard deviations is unlikely: it gains -2.9")
    assert judged(tmp_path, 3.0, (9, 15)).decision == "run"  # fewer seeds may lack all of their rare bad runs


def test_a_baseline_whose_best_rate_is_the_largest_tried_leaves_it_open(tmp_path: Path) -> None:
    """It rises by 5 points at the last step; a candidate's own edge is no obstacle, as it can only gain more."""
    candidate, baseline = sweep(tmp_path / "cand.csv", 3.0, 16), tmp_path / "base.csv"
    rows = sweep(baseline, 0.0, 9).read_text().splitlines()
    baseline.write_text("\n".join(row for row in rows if not row.startswith("0.1,")))
    baseline.write_text(baseline.read_text() + "\n" + "\n".join(f"0.0001,{seed},30,30" for seed in range(3)) + "\n")
    found = gate(baseline, candidate, Reading())
    assert (found.decision, found.seeds, found.rates) == ("open", {}, [0.1, 1.0])
    assert ("it gains 3.00 points" in found.why, "still improves at 1e-2" in found.why) == (True, True)
    assert gate(candidate, baseline, Reading()).decision == "reject"


@pytest.mark.parametrize(
    ("gain", "fresh", "limits", "decision", "text"),
    [
        (2.4, 8, {"min_gain": 6.0}, "reject", "reject: a gain of 6.0 points is unlikely"),
        (3.0, 1, {"min_gain": 3.0}, "run", "run seeds 4 to 5 of the candidate (about 15 more): it is open"),
        (0.2, 4, {"min_sd": 0.5, "max_seeds": 4}, "reject", "with 4 seeds no gain was shown"),
    ],
    ids=["too little", "open", "all seeds"],
)
def test_limits_and_seeds_decide(
    tmp_path: Path, gain: float, fresh: int, limits: dict[str, float], decision: str, text: str
) -> None:
    found = judged(tmp_path, gain, (9, fresh), **limits)
    assert found.decision == decision
    assert text in found.text()


def test_fresh_runs_without_any_value_show_nothing(tmp_path: Path) -> None:
    values = [0.5 + each / 100 for each in NOISE]
    sides = finals(tmp_path / "base.csv", values), finals(tmp_path / "cand.csv", ["nan"] * 4)
    found = gate(*sides, Reading(), Limits(max_seeds=4))
    assert (found.decision, found.why) == ("reject", "with 0 seeds no gain was shown")


def test_seeds_beyond_the_most_decide_nothing(tmp_path: Path) -> None:
    values = [0.5 + each / 100 for each in NOISE]
    base = finals(tmp_path / "base.csv", values)
    late = finals(tmp_path / "late.csv", values[:4] + [0.9] * 6)
    assert gate(base, late, Reading(), Limits(max_seeds=4)).decision == "reject"


def test_fresh_seeds_at_another_rate_than_the_chosen_one_do_not_count(tmp_path: Path) -> None:
    base, cand = sweep(tmp_path / "b.csv", 0, 8), sweep(tmp_path / "c.csv", 3, 4, at=1e-3)
    found = gate(base, cand, Reading())
    assert found.seeds == {"candidate": range(7, 9)}
    assert found.about[1].endswith("0 fresh seeds; not at that rate: seeds 3 to 6")


def test_a_candidate_that_diverges_more_often_is_not_accepted(tmp_path: Path) -> None:
    base = finals(tmp_path / "base.csv", [0.5, 0.51, 0.52, 0.53, 0.52] * 2)
    cand = finals(tmp_path / "cand.csv", [0.9, 0.91, 0.92, 0.93] * 4, "16,nan\n")
    found = gate(base, cand, Reading())
    assert found.decision == "reject"
    assert "1 of the 17 fresh runs of the candidate diverged, of the baseline 0 of the 10 fresh runs" in found.why


def test_failed_runs_and_unequal_noise_are_named(tmp_path: Path) -> None:
    base = finals(tmp_path / "base.csv", [0.5, 0.51, 0.52, 0.53] * 2)
    found = gate(base, finals(tmp_path / "cand.csv", [0.9, 0.91, 0.92, 0.93, 0.9, 0.91, 0.92, 0.1]), Reading())
    assert any(line.startswith("runs far below the others: baseline 0 of 8, candidate 1 of 8;") for line in found.about)
    loud = gate(base, finals(tmp_path / "loud.csv", [0.6, 0.63, 0.66, 0.69] * 2), Reading())
    assert any(line.startswith("the runs of the candidate are 3.0 times as noisy as") for line in loud.about)
    alike = gate(base, finals(tmp_path / "alike.csv", [0.6, 0.61, 0.62, 0.63] * 2), Reading())
    assert not any("far" in line for line in alike.about)


def test_lower_may_be_better_and_two_variants_may_share_a_table(tmp_path: Path) -> None:
    rows = [f"{name},{seed},{loss + NOISE[seed] / 10}" for name, loss in (("a", 2.0), ("b", 1.0)) for seed in range(16)]
    (tmp_path / "t.csv").write_text("variant,seed,val_loss\n" + "\n".join(rows) + "\n")
    assert gate(f"{tmp_path}/t.csv#a", f"{tmp_path}/t.csv#b", Reading()).decision == "accept"
    assert gate(f"{tmp_path}/t.csv#b", f"{tmp_path}/t.csv#a", Reading()).decision == "reject"


def test_test_values_without_validation_need_one_rate(tmp_path: Path) -> None:
    for name, value in (("b", 0.5), ("c", 0.6)):
        rows = [
            f"0.1,{seed},{epoch},{value + epoch / 100 + NOISE[seed] / 100}" for seed in range(16) for epoch in (1, 2)
        ]
        (tmp_path / f"{name}.csv").write_text("lr,seed,epoch,test_acc\n" + "\n".join(rows) + "\n")
    found = gate(tmp_path / "b.csv", tmp_path / "c.csv", Reading())
    assert found.decision == "accept"
    assert "mean test accuracy 52.0" in found.about[0]  # the last epoch, not the best: 50 + 2 + the mean of the noise


MISTAKES = {
    "one table twice": ("base.csv", "base.csv", "are both"),
    "no such variant": ("two.csv#a", "two.csv#c", "no variant 'c' in .*: there are a, b"),
    "two variants": ("base.csv", "two.csv", "has 2 variants .*, the gate compares one: name one, .*two.csv#a"),
    "two tasks": ("base.csv", "tasks.csv", "has 2 tasks .*: keep the rows of one"),
    "other metrics": ("base.csv", "loss.csv", "have other metrics, validation accuracy .* and validation loss"),
    "seeds of their own": ("base.csv", "own.csv", "no seed that is at several of them"),
    "no seeds": ("base.csv", "none.csv", "no seed that is at several of them"),
    "nothing chooses": ("test.csv", "test2.csv", "no validation data, which choose one"),
    "tuned settings": ("wd.csv", "base.csv", "settings are no seeds"),
}


@pytest.mark.parametrize(("baseline", "candidate", "message"), MISTAKES.values(), ids=MISTAKES)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, baseline: str, candidate: str, message: str) -> None:
    finals(tmp_path / "base.csv", [0.5, 0.6])
    tables = {
        "two": "variant,seed,val_acc\na,0,0.5\nb,0,0.6\n",
        "tasks": "task,seed,val_acc\na,0,0.5\nb,0,0.6\n",
        "loss": "seed,val_loss\n0,0.5\n1,0.6\n",
        "own": "lr,seed,val_acc\n0.1,0,0.5\n0.2,1,0.6\n",
        "none": "lr,val_acc\n0.1,0.5\n0.1,0.5\n0.2,0.6\n",
        "test": "lr,seed,test_acc\n0.1,0,0.5\n0.2,0,0.6\n",
        "test2": "lr,seed,test_acc\n0.1,0,0.5\n0.2,0,0.6\n",
        "wd": "lr,optimizer,wd,seed,val_acc\n0.1,adam,0.1,0,0.5\n0.1,adam,0.2,0,0.6\n",
    }
    for name, text in tables.items():
        (tmp_path / f"{name}.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        gate(f"{tmp_path}/{baseline}", f"{tmp_path}/{candidate}", Reading())


def test_settings_tuned_beside_the_rate_are_refused(tmp_path: Path) -> None:
    rows = [f"0.1,{decay},{seed},0.5" for decay in (0.1, 0.2) for seed in (0, 1)]
    for name in ("wd", "other"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["lr,wd,seed,val_acc", *rows, ""]))
    with pytest.raises(UserError, match="the gate compares runs of one setting"):
        gate(tmp_path / "wd.csv", tmp_path / "other.csv", Reading(columns={"nuisance": "wd"}))


def test_the_command_ends_with_the_outcome_as_its_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, best, fresh in (("b", 0, 9), ("c", 3, 16), ("c0", 3, 0)):
        sweep(tmp_path / f"{name}.csv", best, fresh)
    codes = [main(["gate", *pair]) for pair in (["b.csv", "c.csv"], ["c.csv", "b.csv"], ["b.csv", "c0.csv"])]
    assert codes == [0, 1, 3]
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines() if line[0] != " "] == [
        "accept",
        "reject",
        "run seeds 3 to 4 of the candidate",
    ]
    assert not list(tmp_path.glob("judged*"))
    for words, message in (
        (["b.csv"], "Missing argument 'TABLE'"),
        (["b.csv", "c.csv", "--accept", "--drift"], "--accept and --drift exclude each other"),
        (["b.csv", "c.csv", "--accept"], "--accept: b.csv is no stored baseline: name one that ends in .json"),
        (["b.csv", "c.csv", "--min-gain", "-1"], "--min-gain: got -1, want 0 or more"),
        (["b.csv", "c.csv", "--max-seeds", "3"], "should be greater than or equal to 4"),
        (["b.csv", "c.csv", "--guard", "m<=x"], "--guard: got 'm<=x', want METRIC"),
    ):
        assert main(["gate", *words]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_tables_without_a_gain_are_seldom_accepted(tmp_path: Path) -> None:
    """400 pairs of written tables: as the arrays of the simulation, with reading in between."""
    rng, accepted, number = np.random.default_rng(0), 0, 400
    for _ in range(number):
        for name, noise in (("b", 0.3), ("c", 3.0)):
            finals(tmp_path / f"{name}.csv", list(rng.normal(50, noise, 8).round(4)))
        accepted += gate(tmp_path / "b.csv", tmp_path / "c.csv", Reading(), Limits(max_seeds=8)).decision == "accept"
    assert accepted / number < FALSE_ACCEPT + 3 * 0.011  # three standard errors of a share of 5%
