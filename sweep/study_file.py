"""Study files: YAML 1.2 to `Study` and back, with every mistake at its line."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from datasets.files import read_plain
from sweep.errors import UserError, unknown
from sweep.study import Study
from sweep.validation import Place, Strict, shown

MOST_BYTES = 10_000_000
"""Of a study file: 100,000 learning rates, written out, take 2 MB."""
MOST_LEVELS = 20
"""Of nesting; a study has six."""
SURROGATE = re.compile("[\ud800-\udfff]")
"""What YAML's escapes can write and no encoding can."""
STUDIES = Path(__file__).parent / "studies"
"""The studies that come with the program, `NAME.yaml`."""


def shipped_studies() -> list[str]:
    """Return the names of the studies that come with the program, sorted."""
    return sorted(path.stem for path in STUDIES.glob("*.yaml"))


def load_study(name_or_path: str | Path) -> Study:
    """Read a study file.

    Args:
        name_or_path: a shipped study's name, such as `quickstart`, or the path of a file, which ends in `.yaml`.

    Raises:
        UserError: no such study, or mistakes in it: all of them, a line each, as `FILE:LINE: message`.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        if str(name_or_path) not in shipped_studies():
            raise UserError(
                f"{unknown('study', str(name_or_path), shipped_studies())}; or give the path of a .yaml file"
            )
        path = STUDIES / f"{name_or_path}.yaml"
    return _parse(_read(path), path)


def study_to_yaml(study: Study) -> str:
    """Write a study as YAML with all defaults filled in; loading it gives an equal study."""
    plain = _plain(study)
    for task in plain["tasks"].values():
        task |= task.pop("options")
    yaml = YAML()
    yaml.width = 120
    text = io.StringIO()
    yaml.dump(plain, text)
    return text.getvalue()


def _plain(value: Any) -> Any:
    """Turn models, records and paths into what YAML has."""
    if isinstance(value, Strict):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if dataclasses.is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def _read(path: Path) -> str:
    try:
        return read_plain(path, MOST_BYTES).decode("utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{path}: {reason}; shipped studies: {', '.join(shipped_studies())}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a text file in UTF-8") from error
    except ValueError as error:  # a null byte in the path
        raise UserError(f"{str(path)!r}: {error}") from error


def _parse(text: str, path: Path) -> Study:
    """Build a study from its file's text.

    Raises:
        UserError: mistakes.
    """
    reader = _Reader()
    try:
        value = reader.read_text(text)
        study = Study.model_validate(value, context={"folder": path.absolute().parent, "stem": path.stem})
    except YAMLError as error:
        reader.mistakes.append(_yaml_mistake(error, text))
    except ValidationError as error:
        for detail in error.errors():
            if detail["loc"] not in reader.unreadable:
                reader.note(detail["loc"], detail["msg"])
    if not reader.mistakes:
        return study
    lines = [f"{path}:{line}: {message}" for line, message in sorted(reader.mistakes)]
    raise UserError("\n".join(lines))


def _yaml_mistake(error: YAMLError, text: str) -> tuple[int, str]:
    """Return the line of a syntax error and what it is."""
    if isinstance(error, MarkedYAMLError) and (mark := error.problem_mark or error.context_mark):
        context = f" {error.context}:" if error.context else ""
        hint = "; indent with spaces" if "\\t" in str(error.problem) else ""
        return mark.line + 1, f"not valid YAML:{context} {error.problem}{hint}"
    position = getattr(error, "position", 0)
    return text.count("\n", 0, position) + 1, f"not valid YAML: {str(error).splitlines()[0]}"


def _dotted(place: Place) -> str:
    """Write a place as `learning_rates[2]` or `protocol.dropout`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{_key(part)}" for part in place).removeprefix(".")


def _key(key: str) -> str:
    """Write a key as the user did, unless it would not print in one line."""
    return key if key.isprintable() and len(key) <= 60 else shown(key)


class _Reader:
    """Reads YAML into dict, tuple and scalars; keeps lines, notes what a study file must not hold."""

    def __init__(self) -> None:
        self.lines: dict[Place, int] = {(): 1}
        """Line of each key and list entry, from 1."""
        self.mistakes: list[tuple[int, str]] = []
        """(line, message)."""
        self.unreadable: set[Place] = set()
        """Places that were read as None after a mistake; what comes of that is not told again."""
        self._yaml = YAML(typ="safe", pure=True)
        self._seen: set[int] = set()  # ids of nodes; an alias (`*name`) leads to one again

    def read_text(self, text: str) -> Any:
        """Read a document.

        Raises:
            YAMLError: it is not YAML.
        """
        try:
            root = self._yaml.compose(text)
            if root is None:
                return self._skip((), "the file is empty, want a mapping of keys to values")
            return self._read(root, ())
        except RecursionError:
            return self._skip((), f"nested deeper than {MOST_LEVELS} levels", self._deepest(text))

    def note(self, place: Place, message: str, line: int | None = None) -> None:
        """Note a mistake at a place, in its line or that of the closest place around it that has one."""
        if line is None:
            line = next(self.lines[place[:n]] for n in range(len(place), -1, -1) if place[:n] in self.lines)
        self.mistakes.append((line, f"{_dotted(place)}: {message}" if place else message))

    def _deepest(self, text: str) -> int:
        """Return the line where more levels begin than a study has."""
        level = 0
        for event in YAML(typ="safe", pure=True).parse(text):
            level += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            if level > MOST_LEVELS:
                return int(event.start_mark.line) + 1
        raise AssertionError("recursion without nesting")

    def _skip(self, place: Place, message: str, line: int | None = None) -> None:
        self.unreadable.add(place)
        self.note(place, message, line)

    def _read(self, node: Node, place: Place) -> Any:
        if id(node) in self._seen:
            return self._skip(place, "aliases (*name) are not supported; write it out")
        self._seen.add(id(node))
        if isinstance(node, MappingNode):
            return self._mapping(node, place)
        if isinstance(node, SequenceNode):
            return tuple(self._entry(each, (*place, index)) for index, each in enumerate(node.value))
        if SURROGATE.search(node.value):
            return self._skip(place, "half a character (a lone surrogate, such as \\ud800) is no text")
        try:
            return self._yaml.constructor.construct_object(node)
        except YAMLError:
            raise
        except Exception as error:  # `!!int x`, `!!bool x`, `!!timestamp x`: whatever the library's converter hits upon
            return self._skip(place, f"{shown(node.value)} is no {str(node.tag).rpartition(':')[2]} ({error})")

    def _entry(self, node: Node, place: Place) -> Any:
        self.lines[place] = node.start_mark.line + 1
        return self._read(node, place)

    def _mapping(self, node: MappingNode, place: Place) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value
            if not isinstance(key_node, ScalarNode):
                self.note(place, "a list or a mapping is no key; keys must be text", line)
            elif SURROGATE.search(key):
                self.note(place, "half a character (a lone surrogate, such as \\ud800) is no key", line)
            elif not str(key_node.tag).endswith(":str"):
                self.note((*place, key), "keys must be text; put quotes around it", line)
            elif key in mapping:
                first = self.lines[*place, key]
                self.note((*place, key), f"duplicate key; the first is in line {first}", line)
            else:
                self.lines[*place, key] = line
                mapping[key] = self._read(value_node, (*place, key))
        return mapping
