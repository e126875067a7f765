"""What `run` does before it trains: checks, data, weights, and the runs that the record lacks."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping

import torch

from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted
from lr_sweep.sweep.plan.cost import check_disk
from lr_sweep.sweep.plan.plan import state_counts
from lr_sweep.sweep.plan.timings import Timing, keep_planned
from lr_sweep.sweep.results.changes import change_lines, own_examples, renamed_lines, replaced_by, restart_cells
from lr_sweep.sweep.results.files import write_started, write_wanted
from lr_sweep.sweep.search.rounds import next_proposals
from lr_sweep.sweep.search.state import FRESH, Proposal, StudyState
from lr_sweep.sweep.search.stopping import EarlyStopping
from lr_sweep.sweep.study.backbones import ensure_backbones, find_backbones, to_pretrain
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.sweep.study.study import Study
from lr_sweep.sweep.tune.options import Options
from lr_sweep.trainables.own.probe import look_at
from lr_sweep.trainables.own.run import OwnRun, TrainingFunctionError


class Work:
    """A study that is being trained, round by round.

    Of a search or a refinement, the first state is that of the first round in which there is something to train.
    `examples`: versions of data files (`own_examples`).
    """

    def __init__(self, state: StudyState, options: Options, examples: Mapping[str, str]) -> None:
        self.state, self.options, self.examples = state, options, examples
        self.news: queue.SimpleQueue[str] = queue.SimpleQueue()
        """Messages for the user, perhaps from other threads."""
        self.timings: dict[Cell, Timing] = {}
        """How long runs of a cell take, as far as it is known."""
        while self._propose() and not self.state.reconciled.to_train:
            pass
        self.stopping = EarlyStopping(state.study, options.results, self.state.wanted)

    def next_round(self) -> tuple[WantedRun, ...]:
        """Propose until there is something to train; return these runs, none at the end."""
        self.state = self.state.after_training()
        while added := self._propose():
            self.stopping.add(self.state.wanted)
            self.write_down()
            what = "fresh seed" if added[0].sampler == FRESH else "learning rate"
            proposed = f"next round, {counted(len(added), what)} proposed"
            self.news.put(f"{self.state.study.study}: {proposed}; {len(self.state.wanted)} runs wanted so far")
            if to_train := self.state.reconciled.to_train:
                return to_train
        return ()

    def has_next_round(self) -> bool:
        """Return whether some cell gets a further round now."""
        return bool(next_proposals(self.state.after_training()))

    def _propose(self) -> list[Proposal]:
        if added := next_proposals(self.state):
            self.state = self.state.with_proposals(added)
        return added

    def write_down(self) -> None:
        """Write down what is wanted, and how long it is expected to take."""
        state, results = self.state, self.options.results
        write_wanted(results, state.study, state.wanted)
        results.settle()
        self.timings = keep_planned(state.study.study, state.reconciled, self.options.placement, results)

    def take_news(self) -> list[str]:
        """Return the messages since the last call."""
        return [self.news.get() for _ in range(self.news.qsize())]

    def held_ids(self) -> list[str]:
        """Return the ids of wanted runs of which the record holds something."""
        return [run.run_id for run in self.state.wanted if self.options.results.holds(run.run_id)]


def prepare(study: Study, options: Options, say: Callable[[str], None]) -> Work:
    """Fetch data and weights, write down what the study wants, and find what is left to train of it."""
    results, data_dir = options.results, options.data_dir
    study.fetch(data_dir)
    # The machine that starts a cluster's trials may have no GPU itself.
    device = torch.device(options.placement.device if torch.cuda.is_available() else "cpu")
    _check_disk_first(study, options)
    examples = own_examples(study, data_dir)
    backbones = ensure_backbones(study, results.pretrained, results.pretraining_progress, device, say, data_dir)
    state = StudyState(study, backbones, results, data_dir, only=options.only, max_attempts=options.max_attempts)

    replaced = replaced_by(study, state.wanted, results)
    if replaced.text is not None and not options.replace(replaced.text):
        raise UserError("nothing was changed")
    if replaced.cells:
        restart_cells(results, study.study, replaced.cells)
        state = state.again()

    work = Work(state, options, examples)
    wanted, reconciled = work.state.wanted, work.state.reconciled
    for line in [*change_lines(reconciled, results, examples), *renamed_lines(study, wanted, results)]:
        say(line)
    work.write_down()
    write_started(results, study, str(data_dir), options.placement.cpus)
    results.write_index()  # the last writer may have died before it did
    say(f"{study.study}: {len(wanted)} runs wanted, {state_counts(reconciled.counts())}")
    if reconciled.to_train and options.placement.address is None:  # a cluster's machines may have what we lack
        _look_at_function(work, device.type, say)
    return work


def _check_disk_first(study: Study, options: Options) -> None:
    """Refuse to pretrain for runs that the disk cannot hold; their ids are not known yet, their sizes are."""
    backbones = find_backbones(study, options.results.pretrained, options.data_dir)
    if models := to_pretrain(study, backbones):
        state = StudyState(
            study, backbones, options.results, options.data_dir, only=options.only, max_attempts=options.max_attempts
        )
        check_disk(state.expected().to_train, options.results, models)


def _look_at_function(work: Work, device: str, say: Callable[[str], None]) -> None:
    """Import the user's own function before Ray starts here, and try it, unless the record has runs of this code."""
    study, run = work.state.study.study, work.state.reconciled.to_train[0].run
    if not isinstance(run, OwnRun):
        return
    function = run.files.trainable
    try:
        found = look_at(run, None if work.held_ids() else device)
    except TrainingFunctionError as error:
        raise UserError(
            f"{study}: {function} cannot be imported, so no run was started. Correct it, and run this again:\n{error}"
        ) from error
    if found:
        say(f"{study}: {function} {found}")
