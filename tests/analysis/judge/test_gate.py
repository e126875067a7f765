"""The gate: which seeds count, what it says of known gains, and that candidates without a gain seldom pass."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.gate import Comparison, Gate
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.judge.sides import Guard, read_side
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli.parser import main

RATES = (1e-3, 1e-2, 1e-1)
NOISE = (0.3, -0.5, 0.2, 0.1, -0.4, 0.3, 0.0, -0.2, 0.4, -0.1, 0.2, -0.3) * 4
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


def gate(baseline: Path, candidate: Path, **limits: float) -> Gate:
    sides = (read_side(str(path), Reading()) for path in (baseline, candidate))
    return Comparison(**dict(zip(("baseline", "candidate"), sides, strict=True)), **limits).gate()  # type: ignore[arg-type]


def judged(tmp_path: Path, gain: float, fresh: int, **limits: float) -> Gate:
    return gate(sweep(tmp_path / "base.csv", 0, 20), sweep(tmp_path / "cand.csv", gain, fresh), **limits)


def test_seeds_that_chose_the_rate_do_not_count(tmp_path: Path) -> None:
    found = judged(tmp_path, 30.0, 0)  # so large a gain would pass if they did
    assert (found.decision, found.seeds, found.more, found.num_seeds) == ("run", range(3, 5), 30, 0)
    assert math.isnan(found.gain)
    assert "candidate: 0 fresh seeds at learning rate 1e-2" in found.about


def test_a_gain_is_accepted_and_a_loss_rejected(tmp_path: Path) -> None:
    won, lost = judged(tmp_path, 3.0, 30), judged(tmp_path, -3.0, 1)
    assert (won.decision, won.seeds, lost.decision) == ("accept", range(33, 33), "reject")
    assert "is better: it gains 2.99 points in test accuracy (90% interval 2.85 to 3.13)" in won.why
    assert lost.why.startswith("after 1 seed a gain of the least size is unlikely: it gains -2.9")
    assert judged(tmp_path, 3.0, 29).seeds == range(32, 33)  # fewer seeds may lack all of their rare bad runs


def test_a_baseline_whose_best_rate_is_the_largest_tried_leaves_it_open(tmp_path: Path) -> None:
    """It rises by 5 points at the last step; a candidate's own edge is no obstacle, as it can only gain more."""
    candidate, baseline = sweep(tmp_path / "cand.csv", 3.0, 30), tmp_path / "base.csv"
    rows = sweep(baseline, 0.0, 20).read_text().splitlines()
    baseline.write_text("\n".join(row for row in rows if not row.startswith("0.1,")))
    baseline.write_text(baseline.read_text() + "\n" + "\n".join(f"0.0001,{seed},30,30" for seed in range(3)) + "\n")
    found = gate(baseline, candidate)
    assert (found.decision, found.seeds, found.rates) == ("open", range(33, 33), [0.1, 1.0])
    assert ("points" in found.why, "still improves at 1e-2" in found.why) == (True, True)
    assert gate(candidate, baseline).decision == "reject"


@pytest.mark.parametrize(
    ("gain", "fresh", "limits", "decision", "text"),
    [
        (2.4, 8, {"min_gain": 6.0}, "reject", "after 8 seeds a gain of the least size is unlikely: it gains 2.4"),
        (3.0, 1, {"min_gain": 3.0}, "run", "run seeds 4, 5 (at most 29 more): it is undecided after 1 of 30 seeds"),
        (0.05, 20, {"min_sd": 0.1, "max_seeds": 20}, "reject", "after 20 seeds no gain is certain"),
    ],
    ids=["too little", "open", "all seeds"],
)
def test_limits_and_seeds_decide(
    tmp_path: Path, gain: float, fresh: int, limits: dict[str, float], decision: str, text: str
) -> None:
    found = judged(tmp_path, gain, fresh, **limits)
    assert found.decision == decision
    assert text in found.text()


def test_an_interval_is_shown_from_five_seeds_on_and_excludes_0_where_a_gain_is_certain(tmp_path: Path) -> None:
    assert "interval" not in judged(tmp_path, 0.1, 4).why
    for gain, decision in ((0.12, "reject"), (0.2, "accept")):  # p is about 0.09 and 0.01
        answer = judged(tmp_path, gain, 30, min_gain=0.2)
        assert (answer.decision, answer.low > 0) == (decision, decision == "accept")


def test_fewer_than_twenty_seeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="max_seeds: got 19, want at least 20"):
        judged(tmp_path, 3.0, 19, max_seeds=19)


def test_seeds_beyond_the_most_decide_nothing(tmp_path: Path) -> None:
    values = [0.5 + each / 100 for each in NOISE]
    base = finals(tmp_path / "base.csv", values)
    late = finals(tmp_path / "late.csv", values[:20] + [0.9] * 6)
    assert gate(base, late, max_seeds=20).decision == "reject"


def test_fresh_seeds_at_another_rate_than_the_chosen_one_do_not_count(tmp_path: Path) -> None:
    side = read_side(str(sweep(tmp_path / "c.csv", 3, 4, at=1e-3)), Reading())
    assert (side.text("c"), side.next_seed) == ("c: 0 fresh seeds at learning rate 1e-2", 7)


def test_a_guard_is_read_at_the_rate_that_the_metric_chose(tmp_path: Path) -> None:
    rows = [f"{rate},{seed},{90 - 500 * rate},{10 - 50 * rate}" for rate in (0.01, 0.02, 0.1) for seed in range(2)]
    (tmp_path / "t.csv").write_text("\n".join(["lr,seed,val_acc,memory_gb", *rows, "0.01,2,85,9.5", ""]))
    side = read_side(f"{tmp_path}/t.csv", Reading(), [Guard.read("memory_gb<=1x")])
    assert (side.values, side.guards["memory_gb"].values) == ([0.85], [9.5])


def test_a_candidate_that_diverges_more_often_is_rejected(tmp_path: Path) -> None:
    base = finals(tmp_path / "base.csv", [0.5, 0.51, 0.52, 0.53, 0.52] * 4)
    cand = finals(tmp_path / "cand.csv", [0.9, 0.91, 0.92, 0.93] * 4, "16,nan\n")
    found = gate(base, cand)
    assert found.decision == "reject"
    assert found.why.startswith("1 of its runs failed, of the baseline 0")
    found = gate(base, finals(tmp_path / "none.csv", ["nan"] * 2))
    assert found.why == "2 of its runs failed, of the baseline 0: it has no value yet"


def test_failed_runs_are_named(tmp_path: Path) -> None:
    base = finals(tmp_path / "base.csv", [0.5, 0.51, 0.52, 0.53] * 5)
    found = gate(base, finals(tmp_path / "cand.csv", [0.9, 0.91, 0.92, 0.93, 0.9, 0.91, 0.92, 0.1]))
    assert any(line.startswith("runs far below the others: baseline 0 of 20, candidate 1 of 8") for line in found.about)
    alike = gate(base, finals(tmp_path / "alike.csv", [0.6, 0.61, 0.62, 0.63] * 5))
    assert any("up to 14% of the candidate's runs may still fail" in line for line in alike.about)
    assert [line for line in alike.about if "of 20" in line] == []


def test_lower_may_be_better_and_two_variants_may_share_a_table(tmp_path: Path) -> None:
    rows = [f"{name},{seed},{loss + NOISE[seed] / 10}" for name, loss in (("a", 2.0), ("b", 1.0)) for seed in range(30)]
    (tmp_path / "t.csv").write_text("variant,seed,val_loss\n" + "\n".join(rows) + "\n")
    one, other = (read_side(f"{tmp_path}/t.csv", Reading(where=(f"variant={name}",))) for name in "ab")
    assert Comparison(baseline=one, candidate=other).gate().decision == "accept"
    assert Comparison(baseline=other, candidate=one).gate().decision == "reject"
    with pytest.raises(UserError, match=r"has several variants \(a, b\): keep the rows of one"):
        read_side(f"{tmp_path}/t.csv", Reading())


def test_test_values_without_validation_need_one_rate(tmp_path: Path) -> None:
    rows = [f"0.1,{seed},{epoch},{0.5 + epoch / 100 + NOISE[seed] / 100}" for seed in range(12) for epoch in (1, 2)]
    (tmp_path / "b.csv").write_text("lr,seed,epoch,test_acc\n" + "\n".join(rows) + "\n")
    side = read_side(f"{tmp_path}/b.csv", Reading())
    assert side.text("b").startswith("b: 12 fresh seeds at learning rate 1e-1, mean test accuracy 52.0")  # last epochs


MISTAKES = {
    "two tasks": ("task,seed,val_acc\na,0,0.5\nb,0,0.6\n", r"has several tasks \(a, b\)"),
    "seeds of their own": ("lr,seed,val_acc\n0.1,0,0.5\n0.2,1,0.6\n", "several learning rates, and no seed"),
    "no seeds": ("lr,val_acc\n0.1,0.5\n0.1,0.5\n0.2,0.6\n", "write seed=rows"),
    "tuned settings": (
        "lr,optimizer,wd,seed,val_acc\n0.1,adam,0.1,0,0.5\n0.1,adam,0.2,0,0.6\n",
        r"differ in wd \(2 values\)",
    ),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        read_side(f"{tmp_path}/t.csv", Reading())


def test_other_metrics_are_refused(tmp_path: Path) -> None:
    base = finals(tmp_path / "base.csv", [0.5, 0.6])
    (tmp_path / "loss.csv").write_text("seed,val_loss\n0,0.5\n1,0.6\n")
    with pytest.raises(UserError, match=r"the baseline has validation accuracy .*, the candidate validation loss"):
        gate(base, tmp_path / "loss.csv")


def test_settings_tuned_beside_the_rate_are_refused(tmp_path: Path) -> None:
    rows = [f"0.1,{decay},{seed},0.5" for decay in (0.1, 0.2) for seed in (0, 1)]
    (tmp_path / "wd.csv").write_text("\n".join(["lr,wd,seed,val_acc", *rows, ""]))
    with pytest.raises(UserError, match="has several variants"):
        read_side(f"{tmp_path}/wd.csv", Reading(columns={"tuned": "wd"}))


def test_the_command_ends_with_the_outcome_as_its_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, best, fresh in (("b", 0, 20), ("c", 3, 30), ("d", -3, 1), ("e", 3, 0)):
        sweep(tmp_path / f"{name}.csv", best, fresh)
    assert main(["gate", "b.json", "b.csv", "--accept"]) == 0
    assert [main(["gate", "b.json", f"{name}.csv"]) for name in "cde"] == [0, 1, 3]
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines() if line[0] != " "] == [
        "b.json",
        "accept",
        "reject",
        "run seeds 3, 4 (at most 30 more)",
    ]
    for words, message in (
        (["b.json"], "Missing argument 'TABLE'"),
        (["b.json", "c.csv", "--accept", "--drift"], "--accept and --drift exclude each other"),
        (["b.csv", "c.csv", "--accept"], "b.csv: no baseline"),
        (["b.csv", "c.csv"], "b.csv: no baseline"),
        (["d.json", "d.csv", "--accept"], "--accept: got 1 fresh seed, want 30, at least 20: train further seeds"),
        (["b.json", "c.csv", "--max-seeds", "19"], "should be greater than or equal to 20"),
        (["b.json", "c.csv", "--guard", "m<=x"], "--guard: got 'm<=x', want METRIC"),
    ):
        assert main(["gate", *words]) == 2
        assert message in capsys.readouterr().err


def test_logs_without_a_variant_are_read_by_the_command_that_the_error_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    for seed in range(20):
        (tmp_path / "logs" / f"seed{seed}.log").write_text(f"step:1 val_acc:0.5\nstep:2 val_acc:0.6{seed}\n")
    words = ["gate", f"{tmp_path}/b.json", f"{tmp_path}/logs", "--accept"]
    assert main(words) == 2
    advice = re.search(r"(--columns) (\S+),...=file", capsys.readouterr().err)
    assert advice
    assert main([*words, advice[1], f"{advice[2]},seed=file"]) == 0
    assert "20 fresh seeds" in capsys.readouterr().out
