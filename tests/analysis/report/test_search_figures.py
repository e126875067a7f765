"""Optuna's plots of a search for options beside the learning rate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.report import search_figures as module
from lr_sweep.analysis.report.search_figures import optuna_study, search_figures
from lr_sweep.analysis.statistics.selection.summary import StudySummary

LOSS = Metric(name="loss", higher_is_better=False, is_fraction=False)


def rates_of(variant: str, number: int) -> pd.DataFrame:
    """Learning rates 0.1, 0.2, ..., with a dropout, a batch size and a loss; the second one's loss is smallest."""
    rows = [
        {
            **{"task": "digits", "model": "mlp", "variant": variant, "learning_rate": 0.1 * (index + 1)},
            "options": json.dumps({"batch_size": 8 if index % 2 else 32, "dropout": 0.05 * index}),
            "validation_mean": 1.0 + abs(index - 1),
        }
        for index in range(number)
    ]
    return pd.DataFrame(rows)


def summary_of(*cells: pd.DataFrame) -> StudySummary:
    rates = pd.concat(cells, ignore_index=True)
    runs = pd.concat([rates.assign(seed=seed) for seed in (0, 1)])
    return StudySummary(runs=runs, learning_rates=rates.drop(columns="options"), cells=pd.DataFrame(), metric=LOSS)


def test_a_trial_has_a_rate_with_its_options_and_its_mean() -> None:
    study = optuna_study(rates_of("adam", 8), LOSS)
    assert (len(study.trials), study.best_value) == (8, 1.0)
    assert study.best_params == {"learning rate": 0.2, "batch_size": 8, "dropout": 0.05}


def test_options_of_an_earlier_space_are_drawn_where_they_were_tried() -> None:
    later = rates_of("adam", 8).assign(learning_rate=1.0, options='{"dropout": 0.1}')
    study = optuna_study(pd.concat([rates_of("adam", 8), later]), LOSS)
    assert [sorted(trial.params) for trial in (study.trials[0], study.trials[-1])] == [
        ["batch_size", "dropout", "learning rate"],
        ["dropout", "learning rate"],
    ]


def test_searched_cells_have_two_figures_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell of seven rates is not drawn, nor are more cells than the limit; `$^$` is no formula, but an option."""
    monkeypatch.setattr(module, "MOST_CELLS", 1)
    summary = summary_of(rates_of("few", 7), rates_of("adam", 8), rates_of("sgd", 8))
    summary.runs["options"] = summary.runs["options"].str.replace("dropout", "$^$")
    images = search_figures(tmp_path, summary)
    assert [image.title for image in images] == ["Options: digits, mlp, adam", "Importance: digits, mlp, adam"]
    assert all(image.png.is_file() for image in images)
    assert (pyplot.get_fignums(), pyplot.rcParams["axes.facecolor"]) == ([], "white")


def test_without_searched_options_there_is_no_figure(tmp_path: Path) -> None:
    summary = summary_of(rates_of("adam", 8).assign(options=None))
    assert search_figures(tmp_path, summary) == []


def test_optuna_is_not_imported_before_it_draws() -> None:
    line = "import sys, lr_sweep.analysis.report.search_figures; print('optuna' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", line], text=True) == "False\n"
