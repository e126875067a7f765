"""The planted loops: what each plants, and how a resume of it is expected to end."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from lr_sweep.common.files import Fields
from lr_sweep.trainables.own.command_line import CommandLine
from lr_sweep.trainables.own.run import OwnFiles, OwnRun

FOLDER = Path(__file__).parent / "loops"
PLANTED = FOLDER / "planted.py"
STARTERS = Path(__file__).parents[2] / "sweep" / "starters"


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A training loop, and what is expected of its resumed runs."""

    name: str
    file: Path
    function: str = "train"
    """Training function in the file."""
    options: Fields = field(default_factory=dict)
    edits: tuple[tuple[str, str], ...] = ()
    """Texts of the file that are replaced, as a user would edit a starter."""
    expected: str = "equal"
    """Outcome that is as good as `equal`."""
    arguments: tuple[str, ...] = ()
    """Arguments of a command; empty: the file has a training function."""
    needs: str | None = None
    """Library without which the loop is skipped."""
    processes: int = 1
    num_steps: int = 64
    evaluate_every: int = 8

    def missing(self) -> str:
        """Return why the loop cannot be tried; empty: it can."""
        absent = self.needs is not None and find_spec(self.needs) is None
        return f"skipped: {self.needs} is not installed" if absent else ""

    def run(self) -> OwnRun:
        """Return a run of the loop; raises KeyError if the file lacks a text that is to be replaced."""
        text = self.file.read_text()
        for old, new in self.edits:
            if old not in text:
                raise KeyError(f"{self.file} has no {old!r}")
            text = text.replace(old, new)
        code = {self.file.name: text.encode(), "problem.py": (FOLDER / "problem.py").read_bytes()}
        return OwnRun(
            files=OwnFiles(
                trainable=f"{self.file.name}:{self.function}",
                code=code,
                folders=(),
                command=self._command(),
            ),
            data={},
            task="points",
            model="network",
            variant=self.name,
            options=self.options,
            learning_rate=0.02,
            seed=3,
            evaluate_every=self.evaluate_every,
            metric={"name": "loss", "higher_is_better": False, "is_fraction": False},
            processes=self.processes,
        )

    def _command(self) -> CommandLine | None:
        if not self.arguments:
            return None
        named = {"validation": r"val=(\S+)", "test": r"test=(\S+)", "step": r"step=(\d+)"}
        words = (sys.executable, self.file.name, *self.arguments)
        return CommandLine(words=words, metrics=named)


def planted(name: str, function: str, expected: str = "equal", **options: object) -> Loop:
    """Return a loop of `planted.py`, with options for its function."""
    return Loop(name=name, file=PLANTED, function=function, expected=expected, options=options)


def loader(name: str, *, passed: bool = True, **options: object) -> Loop:
    """Return a loop that reads a DataLoader with these options."""
    needs = "torchdata" if options.get("stateful") else None
    return Loop(
        name=name,
        file=FOLDER / "loader.py",
        options={"passed": passed, **options},
        expected="equal" if passed else "named",
        needs=needs,
    )


def starter(name: str, folder: str, needs: str, *edits: tuple[str, str], **options: object) -> Loop:
    """Return a starter of `lr-sweep init`, maybe edited."""
    return Loop(
        name=name, file=STARTERS / folder / "train.py", needs=needs, edits=edits, options=options
    )


def command(name: str, *more: str, expected: str) -> Loop:
    """Return a script that trains by a command."""
    filled = ("--lr", "{learning_rate}", "--seed", "{seed}", "--steps", "{num_steps}")
    return Loop(name=name, file=FOLDER / "script.py", arguments=(*filled, *more), expected=expected)


LOOPS = (
    planted("accumulate-4", "accumulate", every=4),
    planted("accumulate-16", "accumulate", every=16),
    Loop(name="accelerate", file=PLANTED, function="accelerated", needs="accelerate"),
    Loop(name="two-ranks", file=PLANTED, function="ranks", processes=2),
    planted("scaler", "scaled"),
    planted("average-torch", "averaged", form="torch"),
    planted("average-own-class", "averaged", form="own", every=1),
    planted("average-counter", "averaged", form="own", every=10),
    planted("step-schedule", "schedule", kind="step", passed=True),
    planted("step-schedule-forgotten", "schedule", "named", kind="step", passed=False),
    planted("plateau", "schedule", kind="plateau", passed=True),
    planted("plateau-forgotten", "schedule", "named", kind="plateau", passed=False),
    planted("epoch-counter", "epochs", "named", by="counter"),
    planted("epoch-of-session", "epochs", by="session"),
    planted("counter-for-printing", "epochs", by="session", prints=True),
    planted("switch-by-flag", "switch", "named", kind="flag"),
    planted("switch-of-gradients", "switch", kind="unfreeze"),
    planted("target", "target", passed=True),
    planted("target-forgotten", "target", "named", passed=False),
    loader("loader"),
    loader("loader-workers", num_workers=2),
    loader("loader-persistent", num_workers=2, persistent_workers=True),
    loader("loader-generator", generator=True),
    loader("loader-stream", data="stream"),
    loader("loader-sampler", sampler=True),
    loader("augment", augments=True),
    loader("augment-workers", augments=True, num_workers=2),
    loader("loader-stateful", stateful=True),
    loader("loader-stateful-generator", stateful=True, generator=True),
    loader("loader-forgotten", passed=False),
    planted("counters", "counters", passed=True),
    planted("counters-forgotten", "counters", "named", passed=False),
    planted("generators", "generators"),
    planted("statistics-forgotten", "statistics", "named"),
    starter("starter", "torch", "sklearn", optimizer="sgd", momentum=0.9),
    starter("hf-trainer", "hf-trainer", "accelerate", weight_decay=0.1),
    starter(
        "hf-trainer-accumulate",
        "hf-trainer",
        "accelerate",
        ("save_strategy=", "gradient_accumulation_steps=4,\n        save_strategy="),
        ("Shuffled(data, 4,", "Shuffled(data, 16,"),
        weight_decay=0.1,
    ),
    starter("lightning", "lightning", "pytorch_lightning", weight_decay=0.1),
    starter(
        "lightning-accumulate",
        "lightning",
        "pytorch_lightning",
        ("devices=1,", "devices=1,\n        accumulate_grad_batches=4,"),
        ("examples(0, 256)", "examples(0, 264)"),  # 66 batches: the last step has two
        weight_decay=0.1,
    ),
    command("command-resumes", "--checkpoint", "{checkpoint}", expected="unchecked"),
    command("command-anew", expected="equal"),
)
"""All loops; those that forget something resume inexactly."""
