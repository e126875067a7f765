"""A step of Lu et al.'s public code beside the engines: `python -m benchmarks.original_speed CHECKOUT`.

CHECKOUT is a clone of github.com/kzl/universal-computation, whose model (`FPT`) and trainer are run. Its class reads
weights by name from the internet and has GPT-2's width; here it has a body of the cell's size, made on this machine. It
evaluates nothing, shows no progress bar, and draws its batches from the engines' made-up data. One CPU thread;
contenders take turns.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from lr_sweep.benchmarks.engine_cases import CELLS, TOKEN_DIM, Case, Cell, made_up_data
from lr_sweep.benchmarks.engine_speed import (
    Steps,
    machine,
    plain,
    ratio_text,
    seconds_a_step,
    stack,
)

FILES = ("universal_computation/fpt.py", "universal_computation/trainer.py")
CPU = torch.device("cpu")


class Batches:
    """The dataset that their trainer asks for batches."""

    def __init__(self, cell: Cell) -> None:
        data = made_up_data(cell)
        self.inputs = data.train.inputs * data.scale + data.shift  # (N, T, D)
        self.labels = data.train.labels  # (N,)

    def start_epoch(self) -> None:
        """Do nothing: their image datasets neither do."""

    def get_batch(self, batch_size: int, train: bool) -> tuple[Tensor, Tensor]:
        """Return examples with repetition."""
        chosen = torch.randint(len(self.labels), (batch_size,))
        return self.inputs[chosen], self.labels[chosen]


def original(cell: Cell) -> Steps:
    """Return their training step on a cell, as `scripts/run.py` sets it up."""
    module = importlib.import_module("universal_computation.trainer")
    module.tqdm = lambda steps: steps  # type: ignore[attr-defined]
    trainer = module.Trainer(
        _model(cell),
        Batches(cell),
        loss_fn=_loss,
        accuracy_fn=_accuracy,
        batch_size=8,
        test_steps_per_epoch=0,
    )

    def steps(number: int) -> None:
        trainer.steps_per_epoch = number
        trainer.train_epoch()

    return steps


def _model(cell: Cell) -> nn.Module:
    """Build their model with a random body of the cell's size, in place of downloaded weights."""
    from transformers import GPT2Config, GPT2Model

    size = cell.size
    config = GPT2Config(
        n_layer=size.layers, n_head=size.heads, n_embd=size.width, n_positions=size.positions
    )
    body = GPT2Model(config)
    frozen = cell.variant.startswith("frozen")
    with mock.patch.object(GPT2Model, "from_pretrained", return_value=body):
        model = importlib.import_module("universal_computation.fpt").FPT(
            TOKEN_DIM, 10, pretrained=True, freeze_trans=frozen, dropout=0.1
        )
    if size.width != 768:  # their class has no other
        model.in_net[0] = nn.Linear(TOKEN_DIM, size.width)
        model.out_net[0] = nn.Linear(size.width, 10)
    return model


def _loss(out: Tensor, labels: Tensor, x: Tensor) -> Tensor:
    return nn.functional.cross_entropy(out[:, 0], labels)


def _accuracy(predictions: Any, labels: Any, x: Any) -> float:
    return float((predictions[:, 0].argmax(-1) == labels).mean())


def compare(name: str, rounds: int, seconds: float) -> str:
    """Measure a cell in turns; return a line of the table."""
    case = Case(cell=name)
    contenders = {"original": original(CELLS[name]), "plain": plain(case, CPU)}
    contenders |= {"stack of 1": stack(case, 1, CPU), "stack of 2": stack(case, 2, CPU)}
    times: dict[str, list[float]] = {contender: [] for contender in contenders}
    for steps in contenders.values():
        steps(2)
    number = max(2, min(100, int(seconds / seconds_a_step(contenders["original"], 2, CPU))))
    for _ in range(rounds):
        for contender, steps in contenders.items():
            runs = 2 if contender == "stack of 2" else 1
            times[contender].append(1e3 * seconds_a_step(steps, number, CPU) / runs)
    medians = " | ".join(f"{statistics.median(values):.2f}" for values in times.values())
    return f"| {name} | {medians} | {ratio_text(times['original'], times['stack of 2'])} |"


def main(arguments: list[str] | None = None) -> None:
    """Measure and print the table of benchmarks/RESULTS.md."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--cells", default="tiny-frozen,tiny-unfrozen,base-frozen,base-unfrozen")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="of each contender in each round"
    )
    chosen = parser.parse_args(arguments)
    if missing := [file for file in FILES if not (chosen.checkout / file).is_file()]:
        parser.error(
            f"{chosen.checkout} lacks {', '.join(missing)}; want a clone of github.com/kzl/universal-computation"
        )
    sys.path.insert(0, str(chosen.checkout))
    torch.set_num_threads(1)
    print(f"{machine(CPU)}; milliseconds a run-step, medians of {chosen.rounds} rounds")
    print(
        "| cell | original | plain | stack of 1 | stack of 2 | original / stack of 2 |\n|---|---|---|---|---|---|"
    )
    for name in chosen.cells.split(","):
        print(compare(name, chosen.rounds, chosen.seconds), flush=True)


if __name__ == "__main__":
    main()
