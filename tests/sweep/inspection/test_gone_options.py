"""Runs that an earlier version recorded with options that are gone are read by all that trains nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.records import SyntheticRecord, wanted_row
from lr_sweep.tests.support.small_runs import run_of
from lr_sweep.tests.support.tiny_study import succeeds
from lr_sweep.trainables.run import id_of

RATES = (1e-3, 1e-2, 1e-1)
ADAPTED = {"trained": ["input", "lora", "output"], "lora_rank": 4}


def content_of(learning_rate: float, seed: int, trained: list[str], **options: Any) -> dict[str, Any]:
    content = run_of("frozen-random", learning_rate=learning_rate, seed=seed).content()
    return content | {"trained": trained, "protocol": content["protocol"] | options}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Two variants, one with LoRA, at three rates and two seeds; validation is best at 1e-2."""
    record = SyntheticRecord(tmp_path / "results", "adapted")
    for variant, options in {"lora": ADAPTED, "small": {"trained": ["input", "output"]}}.items():
        for rate, best in zip(RATES, (0.5, 0.75, 0.25), strict=True):
            for seed in (0, 1):
                content = json.dumps(content_of(rate, seed, **options), sort_keys=True, separators=(",", ":"))
                labels = {"task": "digits", "model": "tiny", "variant": variant, "learning_rate": rate, "seed": seed}
                wanted = wanted_row(id_of(json.loads(content)), 20, **labels, data_origin="scikit-learn")
                record.wanted.append(wanted)
                curve = [(10, best / 2, best / 2), (20, best + seed / 16, best + seed / 16)]
                record.end(wanted, curve, "complete", 20, content=content, data_checksum="data")
    record.write()
    return Results(tmp_path / "results")


def test_commands_that_train_nothing_read_them(results: Results, tmp_path: Path) -> None:
    run_id = id_of(content_of(1e-2, 0, **ADAPTED))
    at = ("--results", results.root)
    assert run_id in succeeds("ls", *at)
    assert "lora_rank" in succeeds("show", run_id, *at, "--json")
    assert succeeds("verify", *at) == "12 runs, 24 evaluations, 0 checkpoints, 0 weights: no problems\n"
    succeeds("export", tmp_path / "curves.csv", *at)
    assert (pd.read_csv(tmp_path / "curves.csv")["variant"] == "lora").sum() == 12
    succeeds("gc", "--yes", *at)
