"""Tables 1 to 21 of Lu et al. 2021, *Pretrained Transformers as Universal Computation Engines*, entry by entry.

`published.csv` has a line for each entry: `table`, `row` and `column` as the paper labels them, what it is about here
(`task`, `model`, `variant`; empty: not trained here), `metric`, and `value` as printed (copied by hand). Where the two
papers that Lu et al. quote trained something else, it names the nearest that this program trains; `TABLES` has notes.
Not printed but computed from two printed numbers: "Train less Test" of table 7.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

TEST = "test_accuracy_percent"
TRAIN = "train_accuracy_percent"
TRAIN_MINUS_TEST = "train_minus_test_percent"
STEPS = "gradient_steps_to_converge"
SPEEDUP = "speedup"
"""Of `frozen-pretrained` over `frozen-random`, in gradient steps."""
PARAMETERS = "trained_parameters"

NAME = re.compile(r"lu2021-table(?P<table>[1-9]|1[0-9]|2[01])(?P<kind>-swept|-small)?\b")
"""How names of studies of a table begin."""


_TWO = {"mnist": "digits", "bit-xor": "bit-xor"}
SMALL_TASKS: dict[int, dict[str, str]] = {
    2: _TWO | {"bit-memory": "bit-memory"},
    **dict.fromkeys((3, 9, 13, 15, 18, 20, 21), _TWO),
    14: {"cifar10": "digits"},
    16: {"cifar10": "digits"},
}
"""Of each table that has a study for two cores, `lu2021-tableN-small`: its tasks, and what stands for them there."""
SMALL_MODELS = {
    "gpt2": "tiny",
    "gpt2-bit": "tiny-bit",
    "lstm-3": "tiny-lstm-3",
    "lstm-12-residual-positions": "tiny-lstm-12",
}
"""Models, and what stands for them in these studies."""


class Entry(NamedTuple):
    """One number of a table."""

    row: str
    column: str
    task: str
    model: str
    """Empty: not trained here."""
    variant: str
    metric: str
    value: str
    """As printed, without its unit."""

    @property
    def cell(self) -> tuple[str, str, str]:
        """Task, model and variant."""
        return self.task, self.model, self.variant


@dataclass(frozen=True)
class TableText:
    """What is written about a table."""

    title: str
    corner: str
    """Heading of the row labels."""
    note: str = ""
    """What a reader must know to compare."""


TABLES = {
    1: TableText(
        "frozen pretrained transformers, fully trained ones, LSTMs",
        "Model",
        "Published values of Full are those of others for ListOps and C10 LRA (Tay et al. 2020, 3 layers) and Homology "
        "(Rao et al. 2019, 12 layers of width 512); ours are GPT-2s of these sizes. CIFAR-10: FPT is GPT-2 large, Full "
        "has 3 layers.",
    ),
    2: TableText("what the frozen body was pretrained on", "Model"),
    3: TableText(
        "a frozen random transformer and frozen random LSTMs",
        "Model",
        "LSTM: 3 layers; LSTM*: 12 layers, residual connections and positions.",
    ),
    4: TableText("frozen random LSTMs of 12 and 3 layers", "Layers"),
    5: TableText(
        "from a frozen LSTM to a frozen transformer",
        "Model",
        "Each row adds to the one above. The published row of residual connections repeats the 3-layer row of table 4.",
    ),
    6: TableText("gradient steps until convergence", "Model"),
    7: TableText(
        "train and test accuracy on CIFAR-10 LRA",
        "Model",
        "Published values of the lower two rows are Tay et al.'s (2020). Ours of the vanilla transformer is a GPT-2 of "
        "3 layers; Linformer is not trained here.",
    ),
    8: TableText(
        "larger models on CIFAR-10",
        "Model Size",
        "Published parameter counts have 64 positions and tokens of 16 numbers; ours all 1024 positions of GPT-2, and "
        "tokens of 48.",
    ),
    9: TableText("random weights with the statistics of pretrained ones", "Initialization"),
    10: TableText(
        "only the output layer trained",
        "Task",
        "Output Only is trained without dropout. Published values of Full Transformer are Tay et al.'s (2020), ours "
        "a GPT-2 of 3 layers.",
    ),
    11: TableText("the first layers of a model, output layer and layer norms trained", "Number of Layers"),
    12: TableText(
        "the first layers of a model, only the output layer trained",
        "Number of Layers",
        "Trained without dropout. Of 24 layers the paper does not name the width; here it is 768.",
    ),
    13: TableText(
        "more parts trained",
        "Model",
        "Published values are from before divergence for + Attention on MNIST and C10, and + Both on MNIST.",
    ),
    14: TableText(
        "feedforward and the last attention layer trained",
        "Task",
        "The last column trains the feedforward layers, too.",
    ),
    15: TableText("parts of a pretrained model trained, one added after another", "Task"),
    16: TableText(
        "layer norms frozen or trained",
        "Initialization",
        "Frozen: only input and output layer are trained, as the paper's text has it; its table 18 has 53% for that "
        "on a pretrained model, its table 20 24% on a random one.",
    ),
    17: TableText("other pretrained transformers", "Task"),
    18: TableText("one part of a pretrained model trained beside the output layer", "Task"),
    19: TableText("parts of a pretrained model trained, one added after another", "Task", "The same as table 15."),
    20: TableText("one part of a random model trained beside the output layer", "Task"),
    21: TableText("parts of a random model trained, one added after another", "Task"),
}


def table_of(study: str) -> int | None:
    """Return the number of the table that a study is of, by its name; None: of none."""
    found = NAME.match(study)
    return None if found is None else int(found["table"])


def is_small(study: str) -> bool:
    """Return whether a study of a table is the one for two cores, by its name."""
    found = NAME.match(study)
    return found is not None and found["kind"] == "-small"


def entries(table: int, *, small: bool = False) -> list[Entry]:
    """Return the entries of a table, row by row or column by column; `small`: about what stands for their cells."""
    found = [entry for number, entry in _entries() if number == table]
    if not small:
        return found
    tasks = SMALL_TASKS[table]
    return [
        entry._replace(task=tasks[entry.task], model=SMALL_MODELS[entry.model])
        for entry in found
        if entry.task in tasks and entry.model in SMALL_MODELS
    ]


@cache
def _entries() -> list[tuple[int, Entry]]:
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        next(lines)
        return [(int(table), Entry(*rest)) for table, *rest in lines]
