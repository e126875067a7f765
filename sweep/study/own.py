"""Studies whose runs are trained by a function of the user's own."""

from __future__ import annotations

import ast
import math
import symtable
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    model_validator,
)

from lr_sweep.analysis.metric import Metric
from lr_sweep.common.errors import did_you_mean, file_like
from lr_sweep.common.files import Fields, ReadFields, hash_once
from lr_sweep.common.limits import Steps
from lr_sweep.common.source_code import imported_names
from lr_sweep.trainables.own.run import OwnFiles, OwnRun, data_file, module_name

from .cells import StudyCell
from .study import Examples, Study
from .validation import (
    NAME,
    Mistakes,
    Strict,
    by_name,
    each_entry,
    mistake,
    read_record,
    shown,
)

FUNCTION = "train"
"""Label of the model and the variant of a study that names none."""
MAX_CODE_BYTES = 2_000_000
"""Largest size of all code files together, which travel with every run."""
WANTED = "a list of paths and patterns that start from the study file's folder, such as [train.py, parts/*.py]"


class StudyMetric(Strict):
    """What the function reports of each split."""

    name: str
    """For tables and figures."""
    higher_is_better: bool
    """False for a loss."""
    is_fraction: bool = False
    """Values are from 0 to 1, written in percent."""


@dataclass(frozen=True, kw_only=True)
class OwnProtocol:
    """How each run of a function is evaluated."""

    evaluate_every: Steps
    """Gradient steps between evaluations; step budgets are multiples of it."""


def _plain(value: Any) -> Any:
    """Return an option as JSON has it; raises ValueError for other values."""
    is_finite = isinstance(value, float) and math.isfinite(value)
    if is_finite or isinstance(value, int | str | None):
        return value
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {name: _plain(option) for name, option in value.items()}
    raise ValueError(
        f"got {shown(value)}, want text, a finite number, true, false, null, or lists and mappings of these"
    )


def _options(name: str, value: Any) -> Fields:
    """Build the options of a task, model or variant, of which there may be none."""
    NAME.validate_python(name)
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"got {shown(value)}, want a mapping of options, or nothing")
    return dict(each_entry(value or {}, lambda _, option: _plain(option)))


def _named_options(value: Any) -> Any:
    """Build mappings of options by name, of a list of names or of a mapping."""
    return each_entry(by_name(value, "options"), _options)


def _code_files(value: Any, info: ValidationInfo) -> OwnFiles:
    """Read the code files that a study names, by default the trainable's alone, or raise all mistakes in them."""
    trainable = info.data.get("trainable")
    if trainable is None:  # it is a mistake itself
        return OwnFiles(trainable="", code={}, folders=())
    main = trainable.partition(":")[0]
    code, folder = code_files((main,) if value is None else value, info)
    if main not in code:
        raise ValueError(f"it lacks {main}, the file of `trainable`")
    return OwnFiles(trainable=trainable, code=code, folders=(folder,))


def code_files(names: Any, info: ValidationInfo) -> tuple[dict[str, bytes], Path]:
    """Return the contents of code files and patterns, and the study's folder; raises all mistakes in them."""
    folder = folder_of(info)
    paths = _expanded(names, folder)
    if (size := sum(path.stat().st_size for path in paths.values())) > MAX_CODE_BYTES:
        raise ValueError(
            f"these files have {size:,} bytes, want {MAX_CODE_BYTES:,} at most; data belongs in `data`"
        )
    code = {name: path.read_bytes() for name, path in paths.items()}
    _check_modules(code, folder)
    return code, folder


def _data_files(value: Any, info: ValidationInfo) -> dict[str, str]:
    """Return the sha256 of the data files that a study names, or raise all mistakes in them.

    A mapping of names to sha256, as `run` writes it, may name files that are not beside the study.
    """
    folder = folder_of(info)
    if not isinstance(value, Mapping):
        return {name: hash_once(path) for name, path in _expanded(value, folder).items()}

    def check(name: str, sha256: str) -> str:
        path = _below(folder, name)
        if path.is_file() and (got := hash_once(path)) != sha256:
            raise ValueError(f"{path} has sha256 {got}, the study says {shown(sha256)}")
        return sha256

    return dict(each_entry(value, check))


def folder_of(info: ValidationInfo) -> Path:
    """Return the study file's folder."""
    assert info.context, "a study of one's own function is read from a file"
    folder: Path = info.context["folder"]
    return folder


def _expanded(patterns: Any, folder: Path) -> dict[str, Path]:
    """Return the files that patterns stand for, by their names relative to the folder, sorted."""
    if not isinstance(patterns, tuple):
        raise ValueError(f"got {shown(patterns)}, want {WANTED}")
    files = dict[str, Path]()
    with Mistakes() as mistakes:
        for index, pattern in enumerate(patterns):
            with mistakes.below(index):
                files |= _matches(pattern, folder)
    return dict(sorted(files.items()))


def _matches(pattern: Any, folder: Path) -> dict[str, Path]:
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(f"got {shown(pattern)}, want a path or a pattern")
    path = _below(folder, pattern)
    paths = [path] if path.is_file() else [file for file in folder.glob(pattern) if file.is_file()]
    if not paths:
        hint = file_like(path) or ";"
        raise ValueError(
            f"no file {pattern} in {folder}{hint} paths start from the study file's folder"
        )
    return {file.relative_to(folder).as_posix(): file for file in paths}


def _below(folder: Path, name: str) -> Path:
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
        raise ValueError(
            f"got {shown(name)}, want a path below the study file's folder, without '..'"
        )
    return folder / name


def _check_modules(code: Mapping[str, bytes], folder: Path) -> None:
    """Raise mistakes in what the code imports, as far as its text shows them."""
    with Mistakes() as mistakes:
        for name, text in code.items():
            if not name.endswith(".py"):
                continue
            if module_name(name) in sys.stdlib_module_names:
                mistakes.add(f"{name} would hide a module of Python's own; rename it")
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError) as error:
                mistakes.add(f"{name} is no Python: {error}")
                continue
            for module in sorted({*_imported_beside(tree, name, folder)} - code.keys()):
                mistakes.add(f"{name} imports {module}, which is not listed; add it")


def _imported_beside(tree: ast.Module, file: str, folder: Path) -> Iterator[str]:
    package = ".".join(PurePosixPath(file).parent.parts)
    for name in imported_names(tree, package):
        stem = name.replace(".", "/")
        yield from (
            path for path in (f"{stem}.py", f"{stem}/__init__.py") if (folder / path).is_file()
        )


def _trainable_text(value: str, info: ValidationInfo) -> str:
    file, _, name = value.partition(":")
    names = [*PurePosixPath(file).with_suffix("").parts, name]
    if not file.endswith(".py") or not all(map(str.isidentifier, names)):
        raise mistake(
            f"got {shown(value)}, want a file and a function in it, such as train.py:train"
        )
    _matches(file, folder_of(info))
    return value


NamedOptions = Annotated[dict[str, Fields], PlainValidator(_named_options)]


class OwnStudy(Study):
    """A study whose runs are trained by the user's own code."""

    unused_resources: ClassVar = {"engine": ("stacked",), "runs_per_trial": (None, 1)}
    why_unused = "runs of the user's own function train one by one"

    protocol: Annotated[OwnProtocol, PlainValidator(partial(read_record, OwnProtocol))]
    """How each run is evaluated: `evaluate_every` alone; of a command by default 1."""
    variants: NamedOptions = Field(default={FUNCTION: {}})
    """Names, or a mapping of names to options for the function or the command; default: one."""
    models: NamedOptions = Field(default={FUNCTION: {}})
    """Names, or a mapping of names to options for the function; default: one."""
    data: Annotated[dict[str, str], PlainValidator(_data_files)] = Field(default_factory=dict)
    """Data files, or patterns; a recorded study has their sha256."""
    metric: StudyMetric = StudyMetric(name="accuracy", higher_is_better=True, is_fraction=True)
    """What the function reports of each split; default: an accuracy."""

    has_default_task = True

    @classmethod
    def read_options(cls, task: str, given: ReadFields) -> Fields:
        """Build the options of a task; raises its mistakes."""
        return _options(task, given)

    @model_validator(mode="after")
    def _check_options(self) -> OwnStudy:
        seen: dict[str, str] = {}
        for axis, entries in self.options_by_name().items():
            names = {option for options in entries.values() for option in options}
            if twice := sorted(names & seen.keys()):
                raise mistake(
                    f"{', '.join(twice)}: an option of `{seen[twice[0]]}`, too; give it another name",
                    axis,
                )
            seen |= dict.fromkeys(names, axis)
        if twice := sorted(seen.keys() & (self.search.space if self.search else {})):
            raise mistake(
                f"{twice[0]}: an option of `{seen[twice[0]]}`, too; leave it out in one",
                "search",
                "space",
            )
        return self

    def options_by_name(self) -> dict[str, dict[str, Fields]]:
        """Return the options of each task, model and variant, by axis and name."""
        tasks = {name: task.options for name, task in self.tasks.items()}
        return {"tasks": tasks, "models": self.models, "variants": self.variants}

    def options_of(self, cell: StudyCell) -> Fields:
        """Return the options of a cell's task, model and variant."""
        task: Fields = self.tasks[cell.task].options
        return task | self.models[cell.model] | self.variants[cell.variant]

    @property
    def measured(self) -> Metric:
        """What is measured on validation and test data."""
        return Metric(**dict(self.metric))

    @property
    def files(self) -> OwnFiles:
        """The files of the function or of the command."""
        # A field of each kind of these studies, after those that it depends on.
        files: OwnFiles = vars(self)["code"]
        return files

    def examples(self, task: str, data_dir: Path) -> Examples:
        """Name what the function reads; it is in the runs by the sha256 of the files."""
        files = replace(self.files, folders=(*self.files.folders, data_dir))
        maker = files.trainable
        if files.command is not None:
            maker = ", ".join(files.code) or files.command.words[0]
        return Examples({}, "", ", ".join(self.data) or f"made by {maker}", files=files)

    def run(
        self, cell: StudyCell, options: ReadFields, examples: Examples, weights: str | None
    ) -> OwnRun:
        """Return a run of a cell with options that a search chose."""
        assert examples.files, "made by this class"
        return OwnRun(
            files=examples.files,
            data=self.data,
            task=cell.task,
            model=cell.model,
            variant=cell.variant,
            options={**self.options_of(cell), **options},
            learning_rate=0.0,
            seed=0,
            evaluate_every=cell.protocol.evaluate_every,
            metric=self.measured.as_json(),
            processes=self.resources.processes_per_run,
        )

    def fetch(self, data_dir: Path) -> None:
        """Check that the data files are here; raises DataError."""
        for name, sha256 in self.data.items():
            data_file(name, sha256, (*self.files.folders, data_dir))

    def facts(self) -> Fields:
        """Return what reports read of it, as JSON values."""
        return super().facts() | {"metric": dict(self.metric)}

    def plain(self) -> Fields:
        """Return the study as its file has it, with all defaults filled in, as plain JSON values."""
        content = super().plain() | {"code": list(self.files.code)}
        if self.cells is None:
            del content["cells"]
        return content


class FunctionStudy(OwnStudy):
    """A study that calls a training function of the user's own for each run."""

    trainable: Annotated[str, AfterValidator(_trainable_text)]
    """File and function beside the study, such as `train.py:train`, or instead a `command`."""
    code: Annotated[OwnFiles, PlainValidator(_code_files)] = Field(
        default=None, validate_default=True
    )
    """Files that the numbers come from, or patterns; default: the trainable's, or those that the command names."""

    @model_validator(mode="after")
    def _check_function(self) -> FunctionStudy:
        file, _, function = self.trainable.partition(":")
        source = self.code.code[file].decode(errors="replace")
        symbols = symtable.symtable(source, file, "exec").get_symbols()
        defined = sorted(
            symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()
        )
        if function not in defined and b"import *" not in self.code.code[file]:
            hint = did_you_mean(function, defined) or ";"
            raise mistake(
                f"{file} defines no {function!r}{hint} it has {', '.join(defined) or 'nothing'}",
                "trainable",
            )
        return self
