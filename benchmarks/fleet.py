"""A fleet of machines that train trials, are lost and replaced: a discrete-event simulation, not a model of Ray.

Trials wait in a queue for a free GPU, in the order given. A lost machine's trials go back to its end and resume from
their last checkpoint. One driver serves all: it starts one trial at a time, and where what running trials report would
take it longer than the time in which they report it, all of them wait for it and train more slowly by that factor.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What one GPU trains: times in seconds of that GPU."""

    work_s: float
    """Training, undisturbed, checkpoints not counted."""
    checkpoint_every_s: float
    """Training between two checkpoints; none is written at the end."""
    checkpoint_s: float
    """How long a checkpoint holds training up."""
    driver_load: float = 0.0
    """Seconds that the driver takes for what the trial reports in a second."""

    def elapsed_s(self, work_s: float) -> float:
        """Return how long so much work takes, with the checkpoints in it."""
        return work_s + (math.ceil(work_s / self.checkpoint_every_s) - 1) * self.checkpoint_s

    def saved_s(self, elapsed_s: float) -> float:
        """Return the work that checkpoints hold after so long."""
        return math.floor(elapsed_s / (self.checkpoint_every_s + self.checkpoint_s)) * self.checkpoint_every_s

    def trained_s(self, elapsed_s: float) -> float:
        """Return the work that is done after so long."""
        since_s = elapsed_s % (self.checkpoint_every_s + self.checkpoint_s)
        return self.saved_s(elapsed_s) + min(since_s, self.checkpoint_every_s)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Machines that come when there is work and go when there is none."""

    num_nodes: int
    """At most; fewer where there are not enough trials for them."""
    gpus_per_node: int
    node_start_s: float
    """From asking for a machine, which is when paying begins, to the first trial on it."""
    worker_start_s: float
    """From taking a trial on to its first step: process, imports, data, checkpoint."""
    trial_start_s: float
    """What the driver takes to start a trial, one after the other."""
    idle_s: float
    """A machine without work is released after so long."""
    failures_per_hour: float = 0.0
    """Rate for a machine, without notice."""
    interruptions_per_hour: float = 0.0
    """Rate at which a spot machine is taken away."""
    notice_s: float = 0.0
    """From the notice of an interruption to the machine's end; trials save and leave at once if that is time enough."""


@dataclass(kw_only=True)
class Outcome:
    """The outcome of a simulation, in seconds; work and losses are sums over GPUs."""

    makespan_s: float = 0.0
    """From asking for machines to the end of the last trial."""
    paid_s: float = 0.0
    """Sum over machines."""
    lost_s: float = 0.0
    """Work done again because no checkpoint held it."""
    checkpoints_s: float = 0.0
    """Training held up by checkpoints."""
    num_lost_nodes: int = 0
    most_failures: int = 0
    """Most losses of one trial without notice: Tune gives a trial up after `resources.retries` of them."""
    peak_driver_load: float = 0.0
    """Above 1 the driver holds training up."""
    driver_s: float = 0.0
    """The driver's time for what trials reported."""


@dataclass(eq=False, kw_only=True)
class _Left:
    trial: Trial
    work_s: float
    num_failures: int = 0


@dataclass(eq=False)
class _Node:
    free: int
    paid_from_s: float
    running: dict[_Running, None] = field(default_factory=dict)
    gone: bool = False


@dataclass(eq=False, kw_only=True)
class _Running:
    left: _Left
    node: _Node
    began: float
    """On the clock of progress; it may be yet to come."""
    ended: bool = False


def simulate(trials: Sequence[Trial], fleet: Fleet, rng: np.random.Generator) -> Outcome:
    """Train all trials; `rng` draws when machines are lost."""
    return _Simulation(trials, fleet, rng).run()


class _Simulation:
    def __init__(self, trials: Sequence[Trial], fleet: Fleet, rng: np.random.Generator) -> None:
        self.fleet, self.rng, self.outcome = fleet, rng, Outcome()
        self.queue = deque(_Left(trial=trial, work_s=trial.work_s) for trial in trials)
        self.num_unfinished = len(self.queue)
        self.nodes: dict[_Node, None] = {}  # dicts, since sets have another order each time
        self.free_nodes: dict[_Node, None] = {}  # nodes with a free GPU
        self.now_s = 0.0
        # The clock of progress runs like time, but more slowly while the driver holds training up.
        self.progress, self.load = 0.0, 0.0
        self.ends: list[tuple[float, int, _Running]] = []
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.number = itertools.count()
        self.driver_free_s = 0.0

    def run(self) -> Outcome:
        self._ask_for_nodes()
        while self.num_unfinished:
            while self.ends and self.ends[0][2].ended:
                heapq.heappop(self.ends)
            end_s = self.now_s + (self.ends[0][0] - self.progress) * max(1.0, self.load) if self.ends else math.inf
            if self.events and self.events[0][0] <= end_s:
                time_s, _, action = heapq.heappop(self.events)
                self._advance(time_s)
                action()
            else:
                self._advance(end_s)
                self._finish(heapq.heappop(self.ends)[2])
        self.outcome.makespan_s = self.now_s
        for node in self.nodes:
            self._pay(node, self.now_s)
        return self.outcome

    def _advance(self, time_s: float) -> None:
        took_s = time_s - self.now_s
        self.progress += took_s / max(1.0, self.load)
        self.outcome.driver_s += took_s * min(1.0, self.load)
        self.now_s = time_s

    def _at(self, time_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (time_s, next(self.number), action))

    def _ask_for_nodes(self) -> None:
        wanted = min(self.fleet.num_nodes, math.ceil(self.num_unfinished / self.fleet.gpus_per_node))
        while len(self.nodes) < wanted:
            node = _Node(self.fleet.gpus_per_node, self.now_s)
            self.nodes[node] = None
            self._at(self.now_s + self.fleet.node_start_s, lambda node=node: self._up(node))  # type: ignore[misc]

    def _up(self, node: _Node) -> None:
        per_hour = self.fleet.failures_per_hour + self.fleet.interruptions_per_hour
        if per_hour:
            lost_s = self.now_s + self.rng.exponential(3600 / per_hour)
            interrupted = self.rng.random() < self.fleet.interruptions_per_hour / per_hour
            self._at(lost_s, lambda: self._lose(node, self.fleet.notice_s if interrupted else 0.0))
        self.free_nodes[node] = None
        self._start_trials()
        self._watch_idle(node)

    def _start_trials(self) -> None:
        while self.queue and self.free_nodes:
            node = next(iter(self.free_nodes))
            left = self.queue.popleft()
            self.driver_free_s = max(self.now_s, self.driver_free_s) + self.fleet.trial_start_s
            began = self.progress + self.driver_free_s - self.now_s + self.fleet.worker_start_s
            running = _Running(left=left, node=node, began=began)
            heapq.heappush(self.ends, (began + left.trial.elapsed_s(left.work_s), next(self.number), running))
            node.running[running] = None
            node.free -= 1
            if not node.free:
                del self.free_nodes[node]
            self._load(left.trial.driver_load)

    def _load(self, change: float) -> None:
        self.load += change
        self.outcome.peak_driver_load = max(self.outcome.peak_driver_load, self.load)

    def _finish(self, running: _Running) -> None:
        left, node = running.left, running.node
        self.outcome.checkpoints_s += left.trial.elapsed_s(left.work_s) - left.work_s
        self.num_unfinished -= 1
        self._leave(running)
        node.free += 1
        self.free_nodes[node] = None
        self._start_trials()
        self._watch_idle(node)

    def _leave(self, running: _Running) -> None:
        running.ended = True
        del running.node.running[running]
        self._load(-running.left.trial.driver_load)

    def _watch_idle(self, node: _Node) -> None:
        if not node.running:
            self._at(self.now_s + self.fleet.idle_s, lambda: self._release(node))

    def _release(self, node: _Node) -> None:
        """Release a machine. One that had work in between stays a little less than it should: rare, and cheap."""
        if not node.running and not node.gone:
            self._remove(node, self.now_s)

    def _lose(self, node: _Node, notice_s: float) -> None:
        if node.gone:
            return
        self.outcome.num_lost_nodes += 1
        self._remove(node, self.now_s + notice_s)
        for running in list(node.running):
            self._interrupt(running, notice_s)
        self._ask_for_nodes()
        self._start_trials()

    def _interrupt(self, running: _Running, notice_s: float) -> None:
        left, elapsed_s = running.left, max(0.0, self.progress - running.began)
        trained_s, saved_s = left.trial.trained_s(elapsed_s), left.trial.saved_s(elapsed_s)
        self.outcome.checkpoints_s += elapsed_s - trained_s
        self._leave(running)
        if notice_s > 0 and left.trial.checkpoint_s <= notice_s:
            self.outcome.checkpoints_s += left.trial.checkpoint_s
            left.work_s -= trained_s
            self._at(self.now_s + left.trial.checkpoint_s, lambda: self._return(left))
            return
        self.outcome.lost_s += trained_s - saved_s
        left.work_s -= saved_s
        left.num_failures += 1
        self.outcome.most_failures = max(self.outcome.most_failures, left.num_failures)
        self.queue.append(left)

    def _return(self, left: _Left) -> None:
        self.queue.append(left)
        self._start_trials()

    def _remove(self, node: _Node, until_s: float) -> None:
        node.gone = True
        self.free_nodes.pop(node, None)
        self._pay(node, until_s)
        del self.nodes[node]

    def _pay(self, node: _Node, until_s: float) -> None:
        self.outcome.paid_s += until_s - node.paid_from_s
