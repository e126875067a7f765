"""Trials of training functions without a process for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lr_sweep.trainables.own import probe
from lr_sweep.trainables.own.exactness import Probe


@pytest.fixture
def tried_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions are tried in this process, which has imported torch."""

    def try_all(trials: Sequence[probe.Trial], folder: Path, device: str, *, own_budget: bool) -> list[Probe]:
        return [probe._try(run, device, num_steps if own_budget else None) for run, num_steps in trials]

    monkeypatch.setattr(probe, "_tried_in_process", try_all)
