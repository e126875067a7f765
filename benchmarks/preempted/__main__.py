"""Thirty kinds of training loops, killed five times each: what changes is named, all else is equal to the bit.

Each loop of `table.py` trains once undisturbed. Then it trains five times with a kill after a random step, and resumes.
The curve, all that was reported and the final state are compared with the undisturbed run, bit by bit:

- `equal`: no bit differs.
- `named`: bits differ, and the run says that it resumed inexactly, and which variables were not saved.
- `unchecked`: bits differ, and the run says that its resume was not checked: a command has checkpoints of its own.
- `silent`: bits differ, and the run says nothing.

`python -m benchmarks.preempted` ends with code 1 if any kill is silent; `python -m benchmarks.preempted NAME ...` tries
some loops. A false alarm is an equal run that is called inexact.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from lr_sweep.benchmarks.preempted.harness import Result, results_of
from lr_sweep.benchmarks.preempted.table import LOOPS, Loop
from lr_sweep.benchmarks.shared import parser_of
from lr_sweep.trainables.own.run import TrainingFunctionError
from lr_sweep.trainables.worker import hide_checkout

FAILED = "failed"


def main() -> int:
    """Try loops, and print what happened to each."""
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="loops to try; default: all")
    parser.add_argument("--jobs", type=int, default=1, help="loops at the same time")
    parser.add_argument("--seed", type=int, default=0, help="seed of the steps of the kills")
    given = parser.parse_args()
    if unknown := set(given.names) - {loop.name for loop in LOOPS}:
        parser.error(f"unknown loops: {', '.join(sorted(unknown))}")
    hide_checkout()
    chosen = [loop for loop in LOOPS if not given.names or loop.name in given.names]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(given.jobs) as pool:
        attempts = pool.map(partial(attempted, folder=Path(scratch), seed=given.seed), chosen)
        return summarized([shown(*pair) for pair in zip(chosen, attempts, strict=True)])


def attempted(loop: Loop, folder: Path, seed: int) -> list[Result] | str:
    """Return what each kill did to a loop, or why it was not tried or failed."""
    try:
        return loop.missing() or list(results_of(loop, folder / loop.name, seed))
    except (RuntimeError, TrainingFunctionError) as error:
        return f"{FAILED}: {error}"


def shown(loop: Loop, results: list[Result] | str) -> Counter[str]:
    """Print a loop's line, and a line for each kill that does not end as expected; return its counts."""
    if isinstance(results, str):
        print(f"{loop.name:26} {results}", flush=True)
        return Counter([results.partition(":")[0]])
    outcomes = Counter[str](result.outcome for result in results)
    counts = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())
    names = sorted({name for result in results for name in result.not_saved})
    print(f"{loop.name:26} {counts:22} {', '.join(names)}", flush=True)
    for result in results:
        if result.outcome not in ("equal", loop.expected) or result.false_alarm:
            print(f"  {result.kill.text}: {result.outcome}, resumed {result.resumed}", flush=True)
    alarms = sum(result.false_alarm for result in results)
    equal = outcomes["equal"] == len(results)
    return outcomes + Counter({"loops": 1, "loops equal": int(equal), "false alarms": alarms})


def summarized(counts: Sequence[Counter[str]]) -> int:
    """Print the sums; return the exit code."""
    total = sum(counts, Counter[str]())
    print(", ".join(f"{number} {what}" for what, number in total.items()))
    return 1 if total["silent"] or total[FAILED] else 0


if __name__ == "__main__":
    sys.exit(main())
