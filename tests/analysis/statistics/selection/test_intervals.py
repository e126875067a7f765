from __future__ import annotations

from pathlib import Path

from lr_sweep.analysis.statistics.selection.summary import with_interval
from lr_sweep.tests.support.records import SyntheticRecord, summary_of


def small_record(results: Path) -> SyntheticRecord:
    """Three seeds of one variant, one of another, none of a third, equal ones of a fourth."""
    made = SyntheticRecord(results)
    for seed, test in enumerate((0.5, 0.6, 0.7)):
        made.add(1e-4, seed, [(300, 0.3, 0.2)])
        made.add(1e-3, seed, [(300, 0.8, test)])
        made.add(1e-2, seed, [(300, 0.1, 0.1)])
        made.want(1e-3, seed, variant="unfrozen-random")
        made.add(1e-3, seed, [(300, 0.8, 0.5)], variant="unfrozen-pretrained")
    made.add(1e-3, 0, [(300, 0.8, 0.75)], variant="frozen-pretrained")
    made.want(1e-3, 1, variant="frozen-pretrained")
    return made


def test_cells_get_their_intervals(tmp_path: Path) -> None:
    """The t factor of 3 seeds is 4.3027: 0.6 ± 4.3027 x 0.1 / sqrt(3)."""
    intervals = with_interval(summary_of(small_record(tmp_path).write()).cells).set_index("variant")[["low", "high"]]
    assert intervals.loc["frozen-random"].round(4).tolist() == [0.3516, 0.8484]
    assert intervals.loc[["frozen-pretrained", "unfrozen-random"]].isna().all(axis=None)
    assert intervals.loc["unfrozen-pretrained"].tolist() == [0.5, 0.5]
