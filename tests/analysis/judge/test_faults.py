"""Tables with one fault each: read as they should be, or refused with the reason; and other people's kinds of table."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lr_sweep.analysis.judge.judge import judged_json, write_judged
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.judge.table_file import MOST_NAME
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.rates.optimum import optima
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.judged import chosen, judge, rows_of, study_of

pytestmark = pytest.mark.usefixtures("undrawn")


def cells_of(values: dict[tuple[str, float], float], seeds: int = 2) -> list[str]:
    """Return rows of variant, rate, seed and value; seeds differ by 0.01."""
    return [f"{name},{rate},{seed},{v + seed / 100:g}" for (name, rate), v in values.items() for seed in range(seeds)]


PLANTED = {("a", 0.1): 0.7, ("a", 0.01): 0.8, ("a", 0.001): 0.6, ("b", 0.1): 0.5, ("b", 0.01): 0.4, ("b", 0.001): 0.3}
BEST = {"a": (0.01, 0.805), "b": (0.1, 0.505)}
ACCURACIES = "variant,lr,seed,val_acc"


@pytest.mark.parametrize("untrained", ["a,0,{},0.9", "none,0.0,{},0.1"], ids=["of a variant", "of its own"])
def test_rows_without_training_are_left_out_and_said(tmp_path: Path, untrained: str) -> None:
    rows = [*cells_of(PLANTED), *(untrained.format(seed) for seed in (0, 1))]
    study = study_of(tmp_path, rows_of(ACCURACIES, rows))
    assert chosen(study) == {name: (rate, pytest.approx(value)) for name, (rate, value) in BEST.items()}
    assert "NO TRAINING at a learning rate of 0: 2 rows of table.csv left out" in study.about_table


@pytest.mark.parametrize(
    ("head", "changed", "message"),
    [
        (ACCURACIES, ("a,0.1,", "A,0.1,"), "variant has 'A' and 'a': one or two"),
        (ACCURACIES.replace("lr", "lr (x1e-3)"), ("", ""), "no column of learning rates"),
        (ACCURACIES.replace("lr", "lr (%)"), ("", ""), "no column of learning rates"),
        (ACCURACIES, (",0.", ",lr=0."), "lr has 'lr=0.1': give --columns"),
        (ACCURACIES, ("a,0.01,1,0.81", "a,0.01,1,81"), "a fraction in some rows and percent in others"),
        (ACCURACIES, ("a,0.01,1,0.81", "a,0.01,1,-0.81"), "accuracy is down to -0.81"),
    ],
    ids=["capitals", "unit", "percent", "prefix", "one percent", "negative"],
)
def test_what_would_be_read_wrongly_is_refused(
    tmp_path: Path, head: str, changed: tuple[str, str], message: str
) -> None:
    text = rows_of(head, cells_of(PLANTED))
    with pytest.raises(UserError, match=message):
        study_of(tmp_path, text.replace(*changed) if changed[0] else text)


def test_a_lead_over_a_variant_that_still_improves_at_the_largest_rate_is_conditional(tmp_path: Path) -> None:
    """ours is best inside the grid; baseline rises at every step, and may be better beyond."""
    means = {("ours", 1e-4): 0.88, ("ours", 1e-3): 0.92, ("ours", 1e-2): 0.88}
    means |= {("baseline", 1e-4): 0.80, ("baseline", 1e-3): 0.85, ("baseline", 1e-2): 0.89}
    rows = [f"{name},{rate},{seed},{v + seed / 1000:g}" for (name, rate), v in means.items() for seed in range(3)]
    study = study_of(tmp_path, rows_of(ACCURACIES, rows))
    report = write_judged(study, tmp_path / "out")
    (pair,) = judged_json(study, report)["comparisons"]
    condition = "as far as the grid reaches: baseline still improves at 1e-2, the largest rate tried"
    assert (pair["variant"], pair["distinguishable"], pair["condition"]) == ("ours", True, condition)
    for text in (report.text, report.page.read_text(), (report.folder / "comparisons.csv").read_text()):
        assert condition in " ".join(text.split()).replace('<data value="1e-2">1e-2</data>', "1e-2")
    assert "ours beats" not in report.text


def test_ties_are_said_as_ties(tmp_path: Path) -> None:
    values = {("a", 0.1): 0.7, ("a", 0.01): 0.8, ("a", 0.001): 0.6}
    values |= {("b", 0.1): 0.5, ("b", 0.001): 0.8, ("b", 1e-4): 0.3}
    text = write_judged(study_of(tmp_path, rows_of(ACCURACIES, cells_of(values))), tmp_path / "out").text
    assert "no difference is established. a and b have the same mean." in " ".join(text.split())


LOSSES = {("a", 0.1): 3.0, ("a", 0.01): 2.0, ("a", 0.001): 4.0, ("b", 0.1): 6.0, ("b", 0.01): 5.0, ("b", 0.001): 7.0}


@pytest.mark.parametrize("unit", [1e-13, 1.0, 1e9])
def test_a_loss_in_any_unit_has_one_verdict(tmp_path: Path, unit: float) -> None:
    """Both are best at 1e-2, by 3 of the unit: an error of 0.1 sqrt(2 / 3), as seeds differ by 0.1."""
    runs = [(*key, seed, unit * (loss + seed / 10)) for key, loss in LOSSES.items() for seed in range(3)]
    rows = [f"{name},{rate},{seed},{loss!r}" for name, rate, seed, loss in runs]
    study = study_of(tmp_path, rows_of("variant,lr,seed,val_loss", rows))
    assert study.summary.cells["learning_rate"].tolist() == [0.01, 0.01]
    (pair,) = comparisons(study.summary).to_dict("records")
    assert (pair["difference"] / unit, pair["distinguishable"], pair["note"]) == (pytest.approx(-3.0), True, "")
    assert not {"flat", "edge"} & {each.check for each in study.findings}
    # Parabolas through 3, 2, 4: their tops are 1 / 6 decade above 1e-2.
    assert optima(study.summary)["optimum"].tolist() == pytest.approx([10 ** (-2 + 1 / 6)] * 2, rel=1e-3)


@pytest.mark.parametrize(("one", "other"), [("caf\u00e9", "cafe\u0301"), ("adam", "adam\u200b")])
def test_names_that_look_alike_are_refused(tmp_path: Path, one: str, other: str) -> None:
    rows = [row.replace("b,", f"{other},").replace("a,", f"{one},") for row in cells_of(PLANTED)]
    with pytest.raises(UserError, match="variant has .*: one or two"):
        study_of(tmp_path, rows_of(ACCURACIES, rows))


def test_what_no_float_holds_is_infinite_in_percent_too(tmp_path: Path) -> None:
    rows = ["0.1,0,91%", "0.01,0,1e9999999%", "0.001,0,1e-9999999%"]
    runs = study_of(tmp_path, rows_of("lr,seed,val_acc", rows)).summary.runs.set_index("learning_rate")
    assert runs["status"].to_dict() == {0.1: "complete", 0.01: "diverged", 0.001: "complete"}
    assert runs["validation_accuracy"][[0.1, 0.001]].tolist() == [0.91, 0.0]


def test_losses_whose_squares_no_float_holds_are_0(tmp_path: Path) -> None:
    rows = [
        f"{rate},{seed},{loss}"
        for rate, loss in ((0.1, "1e-160"), (0.01, "2e-90"), (0.001, "3e-90"))
        for seed in (0, 1)
    ]
    summary = study_of(tmp_path, rows_of("lr,seed,val_loss", rows)).summary
    assert summary.learning_rates["validation_mean"].tolist() == [3e-90, 2e-90, 0.0]


def test_numbers_of_thousands_of_digits_are_no_counts(tmp_path: Path) -> None:
    head, rates = "lr,config.salt,val_acc", (0.1, 0.01, 0.001)
    rows = [f"{rate},{digit * 5000},{0.5 + rate}" for rate in rates for digit in "12"]
    names = study_of(tmp_path, rows_of(head, rows)).summary.cells["variant"]
    assert (names.nunique(), set(names.str.len())) == (2, {MOST_NAME})
    rows = [f"{rate},0.5,0.6" for rate in rates]
    assert len(study_of(tmp_path, rows_of(f"lr,seed_{'1' * 5000},val_acc", rows)).summary.runs) == 3


@pytest.mark.parametrize("head", ["lr,seed,val_acc", "name,seed,val_acc", "name,lr,val_acc"])
def test_very_long_texts_take_no_time(tmp_path: Path, head: str) -> None:
    """A search for settings, or for the number of a seed, in 200,000 letters took minutes."""
    long, began = "a" * 200_000, time.process_time()
    fields = {"lr": "0.1", "seed": long, "name": long, "val_acc": "0.5"}
    with suppress(UserError):
        study_of(tmp_path, rows_of(head, [",".join(fields[name] for name in head.split(","))]))
    assert time.process_time() - began < 5


# Twins of tables that people published: their columns and traps, with made-up values.


def drawn(path: Path, frame: pd.DataFrame, **settings: str) -> Path:
    frame.to_csv(path, index=False, **settings)  # type: ignore[call-overload]
    return path


def test_epochs_of_test_data_with_an_empty_scheduled_rate(tmp_path: Path) -> None:
    rng, grid = np.random.default_rng(1), list(product((1e-3, 1e-2, 1e-1, 1.0000000000000004), range(5), range(1, 11)))
    frame = pd.DataFrame(grid, columns=["start_lr", "seed", "epoch"]).assign(epoch_lr="")
    frame["train_loss"], frame["test_loss"] = rng.random(len(frame)), rng.random(len(frame))
    frame["test_correct"] = 9000 + 50 * frame["epoch"] + (100 * np.log10(frame["start_lr"])).round().astype(int)
    frame["test_accuracy"] = frame["test_correct"] / 100
    study = judge([drawn(tmp_path / "results.csv", frame)], Reading())
    last = frame[frame["epoch"] == 10].groupby("start_lr")["test_accuracy"].mean() / 100
    assert study.summary.learning_rates["test_mean"].tolist() == pytest.approx(last.tolist())
    assert study.summary.learning_rates["learning_rate"].tolist() == [1e-3, 1e-2, 1e-1, 1.0]
    assert study.info.metric.chosen_on == ""
    assert chosen(judge([tmp_path / "results.csv"], Reading(select_on_test=True)))["all"][0] == 1.0


def test_a_column_of_names_at_several_rates_is_compared_and_not_pooled(tmp_path: Path) -> None:
    """One run each, and rates of their own for one variant; without seeds its six names look like six seeds."""
    grids = {"base": (1e-3, 1e-2, 0.1), "+relu": (1e-3, 1e-2, 0.1), "adam": (1e-5, 1e-4, 1e-3)}
    rows = [
        (name, rate, round(np.random.default_rng(i).random(), 4))
        for i, name in enumerate(grids)
        for rate in grids[name]
    ]
    frame = pd.DataFrame(rows, columns=["name", "lr", "val_acc"])
    frame["val_acc"] += np.arange(len(frame)) / 100
    study = judge([drawn(tmp_path / "lr_sweep.csv", frame)], Reading())
    best = frame.loc[frame.groupby("name")["val_acc"].idxmax()].set_index("name")
    assert chosen(study) == {
        name: (best.at[name, "lr"], pytest.approx(best.at[name, "val_acc"])) for name in ("base", "+relu", "adam")
    }
    assert "variant = name (guessed" in study.about_table[0]
