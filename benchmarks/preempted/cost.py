"""Cost of saving: the time of a step and the size of a checkpoint, against an earlier version of the program.

`python -m benchmarks.preempted.cost EARLIER`, where EARLIER is a checkout of that version. Both versions train a small
network (64-32-10) in a process each, fifty steps and an evaluation in turn; the median of the paired ratios is printed,
and for some optimizers the ratio of the checkpoints' sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHUNK = 50
"""Steps between two evaluations."""
OPTIMIZERS = ("AdamW", "SGD momentum", "SGD")
SIZES = "sizes"
FUNCTION = b"""
import torch
from torch import nn

def train(run, session):
    inputs, labels = torch.randn(512, 64), torch.randint(10, (512,))
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    name, *momentum = run.options["optimizer"].split()
    more = {"momentum": 0.9} if momentum else {}
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=run.learning_rate, **more)
    for _ in session.steps(model=model, optimizer=optimizer):
        batch = torch.randint(len(inputs), (64,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        if session.due:
            session.report(validation=loss, test=loss)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("earlier", type=Path, help="checkout of the earlier version")
    parser.add_argument("--chunks", type=int, default=400, help=f"pairs of {CHUNK} steps")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        now, before = (
            _served(checkout, Path(scratch) / name)
            for name, checkout in (("now", Path(__file__).parents[2]), ("before", given.earlier))
        )
        ratios = [_ratio(now, before, swapped=bool(pair % 2)) for pair in range(given.chunks)]
        low, median, high = statistics.quantiles(ratios, n=4)
        print(f"a step: {median:.3f} of the earlier time (quartiles {low:.3f} to {high:.3f})")
        for name, size, earlier in zip(
            OPTIMIZERS, _asked(now, SIZES), _asked(before, SIZES), strict=True
        ):
            ratio = size / earlier
            print(f"a checkpoint with {name}: {size} bytes, {ratio:.2f} of the earlier {earlier}")
        for process in (now, before):
            process.kill()


def _ratio(now: subprocess.Popen[str], before: subprocess.Popen[str], *, swapped: bool) -> float:
    """Return the quotient of two times, of which either is measured first."""
    if swapped:
        earlier_s, now_s = _asked(before, "chunk"), _asked(now, "chunk")
    else:
        now_s, earlier_s = _asked(now, "chunk"), _asked(before, "chunk")
    return now_s[0] / earlier_s[0]


def _asked(process: subprocess.Popen[str], request: str) -> list[float]:
    assert process.stdin
    assert process.stdout
    print(request, file=process.stdin, flush=True)
    answer: list[float] = json.loads(process.stdout.readline())
    return answer


def _served(checkout: Path, folder: Path) -> subprocess.Popen[str]:
    """Start this file as a process that imports the program from a checkout."""
    folder.mkdir()
    (folder / "lr_sweep").symlink_to(checkout.resolve())
    return subprocess.Popen(
        [sys.executable, "-P", "-c", f"import runpy; runpy.run_path({__file__!r})['serve']()"],
        env=os.environ | {"PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def serve() -> None:
    """Answer requests: `chunk` with the seconds of some steps, `sizes` with bytes of checkpoints."""
    from lr_sweep.trainables.own.engine import OwnTraining
    from lr_sweep.trainables.own.run import OwnFiles, OwnRun

    def training(optimizer: str) -> OwnTraining:
        run = OwnRun(
            files=OwnFiles(trainable="train.py:train", code={"train.py": FUNCTION}, folders=()),
            data={},
            task="task",
            model="model",
            variant=optimizer,
            options={"optimizer": optimizer},
            learning_rate=1e-3,
            seed=0,
            evaluate_every=CHUNK,
            metric={"name": "loss", "higher_is_better": False, "is_fraction": False},
        )
        return OwnTraining(run, 10**9, "cpu")

    measured = training(OPTIMIZERS[0])
    for request in sys.stdin:
        if request.strip() == SIZES:
            print(json.dumps([_size(training(name)) for name in OPTIMIZERS]), flush=True)
            continue
        began = time.perf_counter()
        measured.advance()
        print(json.dumps([time.perf_counter() - began]), flush=True)


def _size(training: object) -> int:
    """Return the bytes of a checkpoint after some steps."""
    from lr_sweep.trainables.checkpoint import checkpoints, save_checkpoint

    training.advance()  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), *training.state(), None)  # type: ignore[attr-defined]
        return checkpoints(Path(folder))[0].stat().st_size


if __name__ == "__main__":
    main()
