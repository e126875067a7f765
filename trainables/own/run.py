"""A run of a training function of the user's own: what can change its numbers, its files, and the function in them."""

from __future__ import annotations

import hashlib
import importlib
import json
import platform
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from lr_sweep.common.files import Fields, ReadFields, hash_once, make_folder
from lr_sweep.common.scratch import scratch_folder
from lr_sweep.common.text import without_escapes
from lr_sweep.datasets.task import DataError
from lr_sweep.trainables.run import PROTOCOL_VERSION, AnyRun

from .command_line import CommandLine


@dataclass(frozen=True, kw_only=True)
class OwnFiles:
    """The files of a training function or a command, as they travel to the process that calls it."""

    trainable: str
    """The function, as `train.py:train`; or the command."""
    code: Mapping[str, bytes]
    """Contents of the code files, by name relative to the study."""
    folders: tuple[Path, ...]
    """Where data files are looked for, by their names: the study's folder, then the data directory."""
    command: CommandLine | None = None
    """None: a function trains."""

    @cached_property
    def checksums(self) -> dict[str, str]:
        """sha256 of the code files, by name."""
        return {name: hashlib.sha256(content).hexdigest() for name, content in self.code.items()}


@dataclass(frozen=True, kw_only=True)
class OwnRun(AnyRun):
    """One (task, model, variant, learning rate, seed) of a training function, with all that it sees but the budget."""

    files: OwnFiles
    """The code; the run's id has its sha256."""
    data: Mapping[str, str]
    """sha256 of every data file, by its name relative to the study."""
    task: str
    model: str
    variant: str
    options: ReadFields
    """Plain JSON values: those of the task, of the model and of the variant."""
    learning_rate: float
    seed: int
    evaluate_every: int
    metric: ReadFields
    """What `session.report` is given of each split: `name`, `higher_is_better`, `is_fraction`."""
    processes: int = 1
    """Processes that train it together; one per device."""
    weights_checksum: None = None

    @property
    def data_checksum(self) -> str:  # type: ignore[override]
        """16 hex digits of the sha256 of `data`; `none`: the study names no data files."""
        if not self.data:
            return "none"
        return hashlib.sha256(json.dumps(dict(self.data), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def steps_between_evaluations(self) -> int:
        """Gradient steps from one evaluation to the next."""
        return self.evaluate_every

    def content(self) -> Fields:
        """Return the run as plain JSON values."""
        same = "task", "model", "variant", "learning_rate", "seed", "weights_checksum"
        mappings, command = ("data", "options", "metric"), self.files.command
        return {
            **{name: getattr(self, name) for name in (*same, "data_checksum")},
            **(command.content() if command else {"trainable": self.files.trainable}),
            "code": self.files.checksums,
            **{name: dict(getattr(self, name)) for name in mappings},
            "protocol": {"evaluate_every": self.evaluate_every},
            "protocol_version": PROTOCOL_VERSION,
            # Sums over ranks round otherwise, and the function sees WORLD_SIZE. Of one process, ids are as ever.
            **({"processes": self.processes} if self.processes > 1 else {}),
        }


def own_run(run: AnyRun) -> OwnRun:
    """Return a run that is known to be of a training function."""
    assert isinstance(run, OwnRun), f"a run of a training function, got {run}"
    return run


TrainingFunction = Callable[[Any, Any], None]

FAILURE = "the training function failed:"
"""Begins the message of `TrainingFunctionError`; its traceback follows."""
CODE_FOLDER = "code-"
"""Begins the name of a folder with a run's code."""


class TrainingFunctionError(Exception):
    """A training function raised; the message has its traceback, by the files' names in the study."""


class MisusedSessionError(TrainingFunctionError):
    """It called its session, or had something saved, in a way that cannot work: a retry would fail, too."""


class OwnCodeError(Exception):
    """The user's files define no such training function."""


@contextmanager
def unpacked(run: OwnRun) -> Iterator[Path]:
    """Write a run's code into a new folder, with links to its data files, for a while; raises as `data_file`."""
    links = {name: data_file(name, sha256, run.files.folders) for name, sha256 in run.data.items()}
    with scratch_folder(CODE_FOLDER) as folder:
        write_code(run.files, folder)
        for file, target in links.items():
            _new(folder / file).symlink_to(target)
        yield folder


def write_code(files: OwnFiles, folder: Path) -> None:
    """Write code files into a folder, by their names."""
    for name, content in files.code.items():
        path = _new(folder / name)
        path.write_bytes(content)
        if content.startswith(b"#!"):
            path.chmod(0o755)


def _new(path: Path) -> Path:
    make_folder(path.parent)
    return path


def data_file(name: str, sha256: str, folders: Sequence[Path]) -> Path:
    """Find a data file with these bytes in one of the folders; raises DataError if none has it."""
    paths = [path for folder in folders if (path := folder / name).is_file()]
    for path in paths:
        if hash_once(path) == sha256:
            return path.resolve()
    nowhere = f"no {name} in {' or '.join(map(str, folders))}"
    problem = f"{paths[0]} has other bytes" if paths else nowhere
    raise DataError(
        f"{problem} on {platform.node()}: want sha256 {sha256}, which the run was planned with. Give every machine the "
        f"same files, beside the study or in the data directory."
    )


def import_function(trainable: str, folder: Path, code: Iterable[str]) -> TrainingFunction:
    """Import `train.py:train` from a folder, without what an earlier run left in the modules of its code files.

    Raises whatever the module raises, and OwnCodeError if it has no such function.
    """
    file, _, name = trainable.partition(":")
    modules = set(map(module_name, code))
    for loaded in list(sys.modules):
        if loaded in modules or loaded.split(".")[0] in modules:
            del sys.modules[loaded]
    other_code = str(folder.with_name(CODE_FOLDER))
    sys.path[:] = [str(folder), *(path for path in sys.path if not path.startswith(other_code))]
    importlib.invalidate_caches()
    module = importlib.import_module(module_name(file))
    function = getattr(module, name, None)
    if not callable(function):
        public = {key: value for key, value in vars(module).items() if key[0] != "_"}
        defined = sorted(filter(lambda key: callable(public[key]), public))
        raise OwnCodeError(
            f"{file} defines no function {name!r}; it has {', '.join(defined) or 'none'}"
        )
    return function


def own_traceback(error: BaseException, folder: Path) -> str:
    """Return a traceback without this program's own frames or colours, with files in `folder` as in the study."""
    raised = traceback.TracebackException.from_exception(error)
    own = [index for index, frame in enumerate(raised.stack) if str(folder) in frame.filename]
    frames = raised.stack[min(own, default=len(raised.stack)) :]
    hidden = (str(Path(__file__).parent), "<frozen importlib")
    shown = [frame for frame in frames if not frame.filename.startswith(hidden)]
    raised.stack = traceback.StackSummary.from_list(shown)
    text = without_escapes("".join(raised.format())).replace(f"{folder}/", "").rstrip()
    # Ray replaces the usual first line.
    return text.replace("Traceback (most recent call last):", "Most recent call last:")


def module_name(file: str) -> str:
    """Return the name by which a code file is imported: `parts.model` of `parts/model.py`."""
    path = PurePosixPath(file).with_suffix("")
    return ".".join(path.parent.parts if path.name == "__init__" else path.parts)
