"""A sweep that is left prints until which step its runs are saved."""

from __future__ import annotations

import pytest

from lr_sweep.sweep.tune.live_runs import saved_text


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([40], "1 run saved at step 40"),
        ([120, 40, 80], "3 runs saved at step 40 to 120"),
        ([7, 0, 7], "2 runs saved at step 7, 1 run to be trained anew"),
        ([], ""),
    ],
)
def test_a_line_sums_up_the_steps(steps: list[int], text: str) -> None:
    assert saved_text(steps) == text
