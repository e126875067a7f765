"""What `run` works on: the study round by round, and the options of the command."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lr_sweep.common.text import counted
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.recorder import write_wanted
from lr_sweep.sweep.search.rounds import next_proposals
from lr_sweep.sweep.search.state import FRESH, Proposal, StudyState
from lr_sweep.sweep.search.stopping import EarlyStopping
from lr_sweep.sweep.study.only import Only
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.trainables.own.exactness import Probe


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `run` takes besides the study."""

    results: Results
    data_dir: Path
    placement: Placement
    retry_failed: bool = False
    """Whether failed runs are trained again."""
    checkpoint_every_s: float = 60.0
    only: Only = field(default_factory=dict)
    restart_inexact: bool = False
    """Whether runs that resumed inexactly are trained anew."""
    fresh: int | None = None
    """Fresh seeds that the command asked for; None: the study's."""


class Work:
    """A study that is being trained, round by round.

    Of a search or a refinement, the first state is that of the first round in which there is something to train.
    `examples`: versions of data files (`own_examples`).
    """

    def __init__(self, state: StudyState, options: Options, examples: Mapping[str, str]) -> None:
        self.state, self.options, self.examples = state, options, examples
        self.news: queue.SimpleQueue[str] = queue.SimpleQueue()
        """Messages for the user, perhaps from other threads."""
        self.probes: dict[Cell, Probe] = {}
        """Findings of the trials of the user's own function before the sweep, by cell."""
        while self._propose() and not self.state.reconciled.to_train:
            pass
        self.stopping = EarlyStopping(state.study, options.results, self.state.wanted)

    def next_round(self) -> tuple[WantedRun, ...]:
        """Propose until there is something to train; return these runs, none at the end."""
        self.state = self._after_training()
        while added := self._propose():
            self.stopping.add(self.state.wanted)
            self.write_down()
            what = "fresh seed" if added[0].sampler == FRESH else "learning rate"
            proposed = f"next round, {counted(len(added), what)} proposed"
            self.news.put(
                f"{self.state.study.study}: {proposed}; {len(self.state.wanted)} runs wanted so far"
            )
            if to_train := self.state.reconciled.to_train:
                return to_train
        return ()

    def has_next_round(self) -> bool:
        """Return whether some cell gets a further round now."""
        return bool(next_proposals(self._after_training()))

    def _after_training(self) -> StudyState:
        return self.state.again(retry_failed=False)  # what failed is not trained again

    def _propose(self) -> list[Proposal]:
        if added := next_proposals(self.state):
            self.state = self.state.with_proposals(added)
        return added

    def write_down(self) -> None:
        """Write down what is wanted."""
        state, results = self.state, self.options.results
        write_wanted(results, state.study, state.wanted)
        results.settle()

    def take_news(self) -> list[str]:
        """Return the messages since the last call."""
        return [self.news.get() for _ in range(self.news.qsize())]

    def held_ids(self) -> list[str]:
        """Return the ids of wanted runs of which the record holds something."""
        return [run.run_id for run in self.state.wanted if self.options.results.holds(run.run_id)]
