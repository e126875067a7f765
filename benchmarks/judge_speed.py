"""CPU seconds and memory of `judge` for a table of 200,000 evaluations, and for 500 logs of 70 kB.

    python -m benchmarks.judge_speed

Wanted: 5 s and 1 GB for the table, 10 s for the logs.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from lr_sweep.analysis.judge.judge import judged
from lr_sweep.analysis.judge.reading import Reading

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
RUNS = list(product("abcde", RATES, range(5)))


def table() -> Iterator[str]:
    """Yield the lines of 200 runs of 1,000 evaluations."""
    yield "run_id,optimizer,lr,seed,step,train_loss,val_loss,val_acc,wd,time_s\n"
    for (number, (name, rate, seed)), step in product(enumerate(RUNS), range(1, 1001)):
        values = ",".join(f"{random.random():.6f}" for _ in range(3))
        yield f"r{number},{name},{rate},{seed},{step},{values},0.1,{random.random() * 100:.2f}\n"


def log() -> Iterator[str]:
    """Yield the lines of a run of 1,300 steps with an evaluation every 50."""
    for step in range(1, 1301):
        evaluation = "" if step % 50 else f" val_loss:{3 + random.random():.4f}"
        yield f"step:{step}/1300 train_loss:{random.random():.4f} train_time:{step * 100}ms{evaluation}\n"


def main() -> None:
    """Print the seconds of both, and the most memory."""
    pd.options.mode.string_storage = "python"  # as the command has it
    with TemporaryDirectory() as folder:
        (Path(folder) / "table.csv").write_text("".join(table()))
        for variant, rate, seed in product("abcde", RATES[:4], range(25)):
            path = Path(folder) / "logs" / variant / f"{rate}" / f"seed{seed}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(log()))
        parts = {"variant": "file.1", "learning_rate": "file.2", "seed": "file.3"}
        commands = {"table.csv": {"validation": "val_acc"}, "logs": parts}
        for name, columns in commands.items():
            began = time.process_time()
            judged([Path(folder) / name], Reading(columns=columns))
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
            print(
                f"{name}: {time.process_time() - began:.1f} s of CPU, at most {most:.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
