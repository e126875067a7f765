"""Strict pydantic models that report all mistakes at once, in the words of the study file.

Every mistake becomes a pydantic error of the type `MISTAKE` with its final text, at the keys and indices (`loc`) where
the user wrote it, so a nested check can raise several and `sweep.study.file` only has to add line numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError

from lr_sweep.common.errors import unknown

STRICT = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)
MISTAKE = "mistake"
MAX_MISTAKES = 100
"""More are not looked for: a program may have written 100,000, and each is compared with the valid names."""
Loc = tuple[str | int, ...]
"""Keys and indices that lead to a value, as pydantic's errors have them."""
T = TypeVar("T")

FIXED = frozenset(
    {
        *("adam_beta1", "adam_beta2", "adam_eps", "momentum", "lion_beta1", "lion_beta2"),
        *("muon_momentum", "base_width", "decay_fraction", "attention", "random_init"),
        *("input_gain", "position_std", "readout"),
        *("split_seed", "data_seed", "generator_seed", "validation_batch", "augment"),
        *("num_patterns", "mask_probability", "max_length", "longer"),
        *("layer_norm", "cell", "buckets", "max_distance", "attention_window", "layer_norm_eps"),
        *("recipe.seed", "bert.positions", "longformer.positions"),
    }
)
"""Options of dataclasses, if need be with their module, that runs record and that a study file cannot change."""

_WANTED = {
    "tuple_type": "a list",
    "model_type": "a mapping of keys to values, {} for none",
    "dataclass_type": "a mapping of keys to values, {} for none",
    "dict_type": "a mapping of keys to values",
    "too_short": "at least one entry",
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
}
EXAMPLES = {
    "protocol": "{evaluate_every: N}",
    "evaluate_every": "N",
    "tasks": "{digits: {num_steps: N}}",
    "variants": "[frozen-random, unfrozen-random]",
    "seeds": "3",
    "max": "20",
    "metrics": r"{validation: 'val_acc=(\S+)', test: 'test_acc=(\S+)'}",
    "name": "loss",
    "higher_is_better": "false",
}
"""Lines to write for keys that a study lacks."""


def mistake(message: str, *loc: str | int) -> ValidationError:
    """Return the error of one mistake, below the value that is being validated."""
    return ValidationError.from_exception_data("study", [_detail(message, loc)])


def _detail(message: str, loc: Loc) -> InitErrorDetails:
    error = PydanticCustomError(MISTAKE, "{message}", {"message": message})
    return InitErrorDetails(type=error, loc=loc, input=None)


class Mistakes:
    """Gathers the mistakes of a `with` block; if there are any, its end raises them as one `ValidationError`."""

    def __init__(self) -> None:
        self._details: list[InitErrorDetails] = []

    def __enter__(self) -> Mistakes:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._raise()

    def add(self, message: str, *loc: str | int) -> None:
        """Add a mistake below the value that is being validated; raise them all where there are too many."""
        if len(self._details) == MAX_MISTAKES:
            self._details.append(
                _detail(f"there are more mistakes; these are the first {MAX_MISTAKES}", ())
            )
            self._raise()
        self._details.append(_detail(message, loc))

    @contextmanager
    def below(self, *loc: str | int, keys: Collection[str] = ()) -> Iterator[None]:
        """Add the mistakes that the block raises, below `loc`; `keys` are the valid ones there."""
        try:
            yield
        except ValidationError as error:
            for detail in error.errors():
                if detail["type"] == "default_factory_not_called":
                    continue  # a default made of a field that has a mistake of its own
                # Leave out what pydantic adds to a location: `(tag)` of a union and `[key]`.
                written = [part for part in detail["loc"] if not str(part).startswith(("(", "["))]
                message = _wording(detail, keys)
                field, _, rest = message.partition(": ")
                if (
                    not written and field in keys
                ):  # a dataclass's own check begins with the field's name
                    written, message = [field], rest
                self.add(message, *loc, *written)
        except ValueError as error:
            self.add(str(error), *loc)

    def _raise(self) -> None:
        if self._details:
            raise ValidationError.from_exception_data("study", self._details)


class Strict(BaseModel):
    """Base of a study's models: frozen; converts no types; refuses unknown keys and names a similar one."""

    model_config = STRICT

    @model_validator(mode="wrap")
    @classmethod
    def _reword(cls, value: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
        with Mistakes() as mistakes, mistakes.below(keys=cls.model_fields):
            return handler(_without_gone(cls, value))


def _without_gone(kind: type, value: Any) -> Any:
    """Leave out options of earlier versions, which recorded studies have, where they changed nothing."""
    gone = getattr(kind, "gone", {})
    if not gone or not isinstance(value, Mapping):
        return value
    return {name: given for name, given in value.items() if name not in gone or given != gone[name]}


def is_fixed(kind: type, option: str) -> bool:
    """Return whether a study file cannot change an option of a dataclass."""
    return not FIXED.isdisjoint((option, f"{kind.__module__.rpartition('.')[2]}.{option}"))


def read_record(kind: type[T], value: Any, more_keys: Iterable[str] = ()) -> T:
    """Build a dataclass from a mapping as strictly as `Strict` does; its fields' types have their limits.

    `trainables` and `datasets` do not import pydantic, so their records are dataclasses. `more_keys` are valid beside
    its fields, for the message about an unknown key.
    """
    value, own = _without_gone(kind, value), fields(cast("Any", kind))
    keys = [*more_keys, *(field.name for field in own if not is_fixed(kind, field.name))]
    with Mistakes() as mistakes:
        for field in own if isinstance(value, Mapping) else ():
            name, given = field.name, value.get(field.name, field.default)
            if is_fixed(kind, name) and given != field.default:
                text = f"got {shown(given)}, but is always {shown(field.default)}; leave it out"
                mistakes.add(text, name)
                value = {key: value[key] for key in value if key != name}
        with mistakes.below(keys=keys):
            record: T = _reader(cast("Any", kind)).validate_python(value)
    return record


@cache
def _reader(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[Any, _Record(kind)], config=STRICT)


@dataclass(frozen=True)
class _Record:
    """Has a dataclass read with the configuration around it, which `TypeAdapter` refuses to give to a dataclass."""

    kind: type

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler.generate_schema(self.kind)
        resolved: Any = handler.resolve_ref_schema(schema)
        resolved["strict"] = False  # mappings will do
        return schema


def each_entry(entries: Any, build: Callable[[str, Any], T]) -> Any:
    """Build a mapping's values by their names and raise all mistakes; return other types, for pydantic to refuse."""
    if not isinstance(entries, Mapping):
        return entries
    built = {}
    with Mistakes() as mistakes:
        for name, value in entries.items():
            with mistakes.below(name):
                built[name] = build(name, value)
    return built


def by_name(value: Any, kind: str) -> Mapping[str, Any]:
    """Return a mapping as it is, and a list of names with None for each; raises mistakes in other values."""
    if isinstance(value, tuple):
        return dict.fromkeys(map(NAME.validate_python, some_distinct(value)))
    if not isinstance(value, Mapping) or not value:
        raise ValueError(
            f"got {shown(value)}, want a list of names, or a mapping of names to {kind}"
        )
    return value


def some_distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    """Refuse an empty list, and repeated values, each where it is repeated."""
    seen = set()
    with Mistakes() as mistakes:
        if not values:
            mistakes.add("want at least one entry")
        for index, value in enumerate(values):
            if value in seen:
                mistakes.add(f"{shown(value)} is there twice", index)
            seen.add(value)
    return values


def by_type(wanted: str) -> Discriminator:
    """Return what tells kinds of values apart, tagged by their types as `(int)`; `wanted` is the mistake for others."""
    return Discriminator(
        lambda value: f"({type(value).__name__})",
        custom_error_type="type",
        custom_error_message=wanted,
    )


def matching(pattern: str, wanted: str) -> AfterValidator:
    """Return a check that a text matches a regular expression, which `wanted` says in words."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"got {shown(text)}, want {wanted}")
        return text

    return AfterValidator(check)


def one_of(kind: str, valid: Iterable[str]) -> AfterValidator:
    """Return a check that a text is one of the valid names of a kind, such as `model`."""

    def check(name: str) -> str:
        if name not in valid:
            raise ValueError(unknown(kind, name, valid))
        return name

    return AfterValidator(check)


NAME_PATTERN = r"(?!.*\.ya?ml$)[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"
NAME_WANTED = (
    "letters a to z, digits, `_`, `-` and `.`, a letter, a digit or `_` first, 100 characters at most, and no name of "
    "a .yaml file"
)
NameRule = matching(NAME_PATTERN, NAME_WANTED)
"""Names of studies, tasks, models and variants, which become parts of names of files and addresses."""
NAME = TypeAdapter(Annotated[str, NameRule])


def _file_name(study: Any, info: ValidationInfo) -> Any:
    """Return the name of the file where the study has none; raises ValueError for another one."""
    stem = info.context["stem"] if info.context else study
    if study is None:
        if stem is None:
            raise ValueError("missing")
        if not re.fullmatch(NAME_PATTERN, stem):
            raise ValueError(
                f"the study is called as its file, {shown(stem)}; rename the file: want {NAME_WANTED}"
            )
        return stem
    if isinstance(study, str) and re.fullmatch(NAME_PATTERN, study) and study != stem:
        raise ValueError(
            f"{study!r} is not the file's name; leave it out, or call the file {study}.yaml"
        )
    return study


def _one_line(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("want one line of text")
    return text


def _with_values(tags: Any) -> Any:
    """Return tags with a value each, which is empty for words."""
    return {str(word): "" for word in tags} if isinstance(tags, tuple) else tags


_TagKey = matching(
    r"(?!mlflow\.|sweep\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}",
    "letters a to z, digits, `_`, `-` and `.`, and no `mlflow.` or `sweep.` first",
)
Notes = Annotated[
    str,
    matching(
        r"[^\x00-\x08\x0b-\x1f\x7f-\x9f]{0,4000}", "at most 4000 characters, and no control ones"
    ),
]
Tags = Annotated[dict[Annotated[str, _TagKey], Notes], BeforeValidator(_with_values)]
StudyName = Annotated[str, NameRule, BeforeValidator(_file_name)]
OneLine = Annotated[str, AfterValidator(_one_line)]


REMOVED = {
    "axes": "gone: list each combination in `variants`, such as `sgd: {initialisation: random, trained: [output], "
    "protocol: {optimizer: sgd}}`",
    "paired": "gone: variants are compared by Welch's t test; remove this line",
    "decide": "gone: write `fresh: {max: N}` for its `max_seeds`, and `equal_within: SIZE` in the study for its "
    "`min_difference`; all pairs are compared, with an error of 0.05",
    "equal_within": "gone from here: give `equal_within` to the study",
    "protocol": "gone from here: give `evaluate_every` in a task, and other options in a variant's `protocol`",
    "scale": "gone: a range from 0 has a linear scale, any other a logarithmic one; remove this key",
    "at_once": "gone: a round has 2 learning rates with tpe and gp, and all with the others",
}
"""Keys of earlier versions, with what to do."""


def _wording(detail: ErrorDetails, keys: Iterable[str]) -> str:
    kind, message = detail["type"], detail["msg"]
    match kind:
        case "extra_forbidden" | "unexpected_keyword_argument":
            key = str(detail["loc"][-1])
            return REMOVED.get(key) or unknown("key", key, keys)
        case "missing":
            key = str(detail["loc"][-1])
            return f"missing; write `{key}: {EXAMPLES[key]}`" if key in EXAMPLES else "missing"
        case "too_long":
            return f"got {detail['ctx']['actual_length']} entries, want at most {detail['ctx']['max_length']}"
        case "mistake" | "value_error":
            return message.removeprefix("Value error, ")
    wanted = _WANTED.get(kind, message.removeprefix("Input should be "))
    return f"got {shown(detail['input'])}, want {wanted}"


def shown(value: Any) -> str:
    """Return a value much as YAML writes it, in 60 characters at most."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except ValueError:  # an integer of more than 4,300 digits, which YAML can give in hexadecimal
        return "a number too long to show"
    text = text.encode(errors="backslashreplace").decode()  # of YAML's "\ud800", which is no text
    return text if len(text) <= 60 else text[:57] + "..."
