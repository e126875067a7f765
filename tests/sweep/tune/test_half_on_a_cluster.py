"""A study half of which is trained on this machine, half on a cluster: one set of ids, weights made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.tests.support.chaos import final_weights, record_content
from lr_sweep.tests.support.small_cluster import NO_TOKEN, small_cluster
from lr_sweep.tests.support.tiny_study import rows, swept, write_study

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
MODELS = (
    "{small: {size: {layers: 2, heads: 4, width: 128, positions: 128}, "  # threads divide the sums of such sizes
    "pretrained: {pretrain: {num_steps: 2, batch_size: 16, num_tokens: 128}}}}"
)
HERE, THERE = {"OMP_NUM_THREADS": "2"}, NO_TOKEN | {"OMP_NUM_THREADS": "1"}  # `ray up` sets 1


def test_half_here_and_half_on_a_cluster_is_one_study(tmp_path: Path) -> None:
    study = write_study(tmp_path, rates=(1e-3,), models=MODELS, seeds=2)
    halves, whole = tmp_path / "halves", tmp_path / "whole"
    swept("run", study, "--only", "seed=0", "--results", halves, env=HERE)
    assert len(first := set(rows(halves))) == 2
    made = weights_files(halves)
    with small_cluster(2) as cluster:
        for results in (halves, whole):
            swept("run", study, "--results", results, "--address", cluster.address, env=THERE)
    assert weights_files(halves) == made  # neither made again nor written
    assert first < set(rows(halves)) == set(rows(whole))
    assert len(rows(whole)) == 4
    assert {row["attempts"] for row in rows(halves).values()} == {1}
    assert record_content(halves) == record_content(whole)
    assert final_weights(halves) == final_weights(whole)


def weights_files(results: Path) -> dict[str, int]:
    """Return when each file of pretrained weights was written, in ns, by its path in the results."""
    found = (results / "pretrained").rglob("*.safetensors")
    files = {str(path.relative_to(results)): path.stat().st_mtime_ns for path in found}
    assert files
    return files
