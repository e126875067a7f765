"""ListOps at its real 2,000 tokens is trained on two cores, in a small study with real Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.tests.support.tiny_study import rows, swept, write_study

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_listops_at_its_real_length(tmp_path: Path) -> None:
    listops = "num_steps: 2, source: generated, num_train: 16, num_validation: 8, num_test: 8"
    study = write_study(
        tmp_path,
        variants=("frozen-random", "unfrozen-random"),
        tasks=f"{{listops: {{{listops}}}}}",
        protocol="{batch_size: 2, evaluate_every: 2, train_examples_evaluated: 8}",
        runs_per_trial=2,
    )
    swept("run", study, "--results", tmp_path / "results", "--cpus", "2")
    recorded = rows(tmp_path / "results").values()
    assert [row["status"] for row in recorded] == ["complete"] * 4
    assert all('"attention":"blocked"' in row["content"] for row in recorded)
