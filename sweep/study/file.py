"""Study files: YAML 1.2 to `Study` and back, with every mistake at its line."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lr_sweep.common.errors import UserError, file_like, unknown
from lr_sweep.common.files import Fields, as_version_1_2, read_plain

from .built_in import BuiltInStudy
from .command import CommandStudy
from .own import FunctionStudy
from .study import Study
from .validation import Loc, shown

MAX_BYTES = 1_500_000
"""Largest study file; 100 to 200 kB are read in a second, and 5,000 variants, written out, take 1.3 MB."""
STUDIES = Path(__file__).parent.parent / "studies"
"""Folder of the shipped studies, `NAME.yaml`; those of Lu et al. 2021 are in a folder of their own."""


def listed_studies() -> list[str]:
    """Return the names of the shipped studies for messages, those of Lu et al. 2021 in one."""
    others = [name for name in shipped_studies() if not name.startswith("lu2021-")]
    return [*others, "lu2021-table1 to lu2021-table21, each also with -swept, some with -small"]


def shipped_studies() -> dict[str, Path]:
    """Return the files of the shipped studies by their names."""
    paths = (
        path
        for pattern in ("*.yaml", "lu2021/*.yaml")
        for path in sorted(STUDIES.glob(pattern), key=lambda path: path.stem)
    )
    return {path.stem: path for path in paths}


def load_study(name_or_path: str | Path, recorded: Iterable[str] = ()) -> Study:
    """Read a shipped study by its name, or a `.yaml` file by its path; `recorded` are further names for its error.

    Raises UserError: no such study; or its mistakes, a line each, as `FILE:LINE: message`.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        shipped = shipped_studies()
        if str(name_or_path) not in shipped:
            recorded = sorted(set(recorded) - set(shipped))
            if hint := file_like(path, "*.yaml"):
                raise UserError(f"unknown study {str(path)!r}{hint}")
            problem = unknown(
                "study", name_or_path, [*shipped, *recorded], [*listed_studies(), *recorded]
            )
            raise UserError(f"{problem}; or give the path of a .yaml file")
        path = shipped[str(name_or_path)]
    return _parse(_read(path), path)


def study_of(fields: Mapping[str, Any], folder: Path) -> Study:
    """Build a study from what a file holds, with paths relative to a folder; raises UserError, a line a mistake."""
    try:
        return _validated(_with_tuples(dict(fields)), folder, fields.get("study"))
    except ValidationError as error:
        mistakes = [
            f"{_dotted(detail['loc'])}: {detail['msg']}".removeprefix(": ")
            for detail in error.errors()
        ]
        raise UserError("\n".join(mistakes)) from error


def study_of_function(function: Callable[..., Any], fields: Mapping[str, Any]) -> Study:
    """Build the study of a training function from what a file holds beside it; raises UserError as `study_of`."""
    name = getattr(function, "__qualname__", repr(function))
    module = sys.modules.get(getattr(function, "__module__", ""))
    path = Path(getattr(module, "__file__", None) or "").absolute()
    if getattr(module, name, None) is not function or not path.is_file():
        raise UserError(
            f"got {name} as the training function, want one that `def` defines at the top of a file, from which "
            f"workers import it. In a notebook, `%%writefile train.py` writes a cell to a file; then "
            f"`from train import train`."
        )
    return study_of({"study": path.stem, "trainable": f"{path.name}:{name}", **fields}, path.parent)


def _validated(value: Any, folder: Path, stem: Any) -> Study:
    given = value if isinstance(value, dict) else {}
    kind: type[Study] = FunctionStudy if "trainable" in given else BuiltInStudy
    if "command" in given:
        kind = CommandStudy
    return kind.model_validate(value, context={"folder": folder, "stem": stem})


def _with_tuples(value: Any) -> Any:
    """Return a value with tuples for lists, as the reader of files has them."""
    if isinstance(value, Mapping):
        return {key: _with_tuples(entry) for key, entry in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list | tuple) else value


def read_yaml(text: str) -> Any:
    """Read the YAML of a study, with no look at what it says; raises UserError with its mistakes."""
    reader = _Reader()
    value = reader.read_text(as_version_1_2(text))
    if reader.mistakes:
        raise UserError(
            "; ".join(f"line {line}: {message}" for line, message in sorted(reader.mistakes))
        )
    return value


def load_built_in_study(name_or_path: str | Path) -> Study:
    """Read a study whose models this program trains; raises as `load_study`, and UserError for another."""
    study = load_study(name_or_path)
    if study.files is not None:
        raise UserError(
            f"{name_or_path}: its runs are of {study.files.trainable}, whose models are not known here"
        )
    return study


def study_to_yaml(study: Study) -> str:
    """Write a study as YAML with all defaults filled in; loading it beside the same files gives an equal study."""
    yaml = YAML()
    yaml.width = 120
    text = io.StringIO()
    yaml.dump(study.plain(), text)
    return text.getvalue()


def _read(path: Path) -> str:
    try:
        return as_version_1_2(read_plain(path, MAX_BYTES).decode("utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        hint = file_like(path, "*.y*ml") if isinstance(error, FileNotFoundError) else ""
        raise UserError(
            f"{path}: {reason}{hint or ';'} shipped studies: {', '.join(listed_studies())}"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a text file in UTF-8") from error
    except ValueError as error:  # a null byte in the path
        raise UserError(f"{str(path)!r}: {error}") from error


def _parse(text: str, path: Path) -> Study:
    reader = _Reader()
    value = reader.read_text(text)
    try:
        study = _validated(value, path.absolute().parent, path.stem)
    except ValidationError as error:
        for detail in error.errors():
            if detail["loc"] not in reader.unreadable:
                reader.note(detail["loc"], detail["msg"])
    if reader.mistakes:
        raise UserError(
            "\n".join(f"{path}:{line}: {message}" for line, message in sorted(reader.mistakes))
        )
    return study


def _yaml_mistake(error: YAMLError, text: str) -> tuple[int, str]:
    if isinstance(error, MarkedYAMLError) and (mark := error.problem_mark or error.context_mark):
        context = f" {error.context}:" if error.context else ""
        hint = "; indent with spaces" if "\\t" in str(error.problem) else ""
        return mark.line + 1, f"not valid YAML:{context} {error.problem}{hint}"
    position = getattr(error, "position", 0)
    return text.count("\n", 0, position) + 1, f"not valid YAML: {str(error).splitlines()[0]}"


def _dotted(loc: Loc) -> str:
    """Return `learning_rates[2]` or `protocol.dropout`."""
    text = ""
    for key in loc:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f".{key}" if key.isprintable() and len(key) <= 60 else f".{shown(key)}"
    return text.removeprefix(".")


class _Reader:
    """Reads YAML into dict, tuple and scalars; keeps line numbers, notes mistakes."""

    def __init__(self) -> None:
        self.lines: dict[Loc, int] = {(): 1}
        """Lines of each key and list entry."""
        self.mistakes: list[tuple[int, str]] = []
        """Lines and messages."""
        self.unreadable = set[Loc]()
        """Values read as None after a mistake: pydantic's messages about them are left out."""
        self._yaml = YAML(typ="safe", pure=True)
        self._seen = set[int]()
        """Ids of nodes; an alias (`*name`) leads to one again."""

    def read_text(self, text: str) -> Any:
        """Read a document, as None if it is no YAML."""
        try:
            root = self._yaml.compose(text)
            if root is None:
                return self._skip((), "the file is empty, want a mapping of keys to values")
            return self._read(root, ())
        except RecursionError:
            return self._skip((), "nested too deep")
        except YAMLError as error:
            self.unreadable.add(())
            self.mistakes.append(_yaml_mistake(error, text))
            return None

    def note(self, loc: Loc, message: str, line: int | None = None) -> None:
        """Note a mistake, by default in the line of its key or of the closest key around it."""
        if line is None:
            line = next(
                self.lines[loc[:n]] for n in range(len(loc), -1, -1) if loc[:n] in self.lines
            )
        self.mistakes.append((line, f"{_dotted(loc)}: {message}" if loc else message))

    def _skip(self, loc: Loc, message: str) -> None:
        self.unreadable.add(loc)
        self.note(loc, message)

    def _read(self, node: Node, loc: Loc) -> Any:
        if id(node) in self._seen:
            return self._skip(loc, "aliases (*name) are not supported; write it out")
        self._seen.add(id(node))
        if isinstance(node, MappingNode):
            return self._mapping(node, loc)
        if isinstance(node, SequenceNode):
            self.lines |= {
                (*loc, index): entry.start_mark.line + 1 for index, entry in enumerate(node.value)
            }
            return tuple(self._read(entry, (*loc, index)) for index, entry in enumerate(node.value))
        try:
            return self._yaml.constructor.construct_object(node)
        except YAMLError:
            raise
        except Exception as error:  # any of the library's converters, of `!!int x` or `!!bool x`
            kind = str(node.tag).rpartition(":")[2]
            return self._skip(loc, f"{shown(node.value)} is no {kind} ({error})")

    def _mapping(self, node: MappingNode, loc: Loc) -> Fields:
        mapping: Fields = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self.note(loc, "a list or a mapping is no key; keys must be text", line)
            elif not str(key_node.tag).endswith(":str"):
                self.note((*loc, key), "keys must be text; put quotes around it", line)
            elif key in mapping:
                self.note(
                    (*loc, key),
                    f"duplicate key; the first is in line {self.lines[*loc, key]}",
                    line,
                )
            else:
                self.lines[*loc, key] = line
                mapping[key] = self._read(value_node, (*loc, key))
        return mapping
