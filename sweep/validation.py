"""Strict pydantic models whose errors come all at once, in words for users.

Every mistake becomes a pydantic error of the type `MISTAKE` with its final wording, at the place (`loc`) where the
user wrote it, so a nested check can raise several and `sweep.study_file` only has to add line numbers.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from sweep.errors import unknown

MISTAKE = "mistake"
Place = tuple[str | int, ...]
T = TypeVar("T")

_WANTED = {
    "tuple_type": "a list",
    "model_type": "a mapping of keys to values, {} for none",
    "dict_type": "a mapping of keys to values",
    "too_short": "at least one entry",
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
}


AtLeast1 = Field(ge=1, le=10**9)
Steps = Field(ge=1, le=10**12)
"""Gradient steps: a million million take decades, and what is counted and added up of them fits into int64."""
Fraction = Field(ge=0, lt=1)
Seed = Field(ge=0, lt=2**63)  # records hold seeds as int64
Positive = Field(gt=0, le=1e30)
"""What is computed with in float32, which ends at 3e38."""
LearningRate = Field(gt=0, le=10)


class Mistakes:
    """Gathers mistakes, to raise them together."""

    def __init__(self) -> None:
        self._details: list[InitErrorDetails] = []

    def add(self, message: str, *place: str | int) -> None:
        """Note a mistake at a place below the value that is being validated."""
        error = PydanticCustomError(MISTAKE, "{message}", {"message": message})
        self._details.append(InitErrorDetails(type=error, loc=place, input=None))

    @contextmanager
    def below(self, *place: str | int, keys: Iterable[str] = ()) -> Iterator[None]:
        """Note the mistakes that the block raises, as below `place`; `keys` are the valid ones there."""
        try:
            yield
        except ValidationError as error:
            for detail in error.errors():
                self.add(_wording(detail, keys), *place, *_written_place(detail["loc"]))
        except ValueError as error:
            self.add(str(error), *place)

    def raise_all(self) -> None:
        """Raise what was gathered.

        Raises:
            ValidationError: there was a mistake.
        """
        if self._details:
            raise ValidationError.from_exception_data("study", self._details)


class Strict(BaseModel):
    """Base of the models of a study: frozen, no conversions between types, unknown keys refused with a suggestion."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _reword(cls, value: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
        mistakes = Mistakes()
        model = None
        with mistakes.below(keys=cls.model_fields):
            model = handler(value)
        mistakes.raise_all()
        return model


def dataclass_fields(kind: type, limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dataclass's fields as `create_model` wants them, with limits (`Field`, validators) by field name."""
    hints = get_type_hints(kind)
    fields = {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if get_origin(hint) is Literal:
            hint = Annotated[hint, _one_of(get_args(hint))]
        elif field.name in limits:
            hint = Annotated[hint, limits[field.name]]
        fields[field.name] = (hint, ... if field.default is dataclasses.MISSING else field.default)
    return fields


def dataclass_from(kind: type[T], limits: Mapping[str, Any]) -> Callable[[Any, Any], T]:
    """Return a validator that builds a dataclass from a mapping as strictly as `Strict` does.

    For `PlainValidator`: the packages below this one know nothing of pydantic, so their records are dataclasses.
    """
    model = create_model(kind.__name__, __base__=Strict, **dataclass_fields(kind, limits))

    def build(value: Any, info: Any) -> T:
        if isinstance(value, kind):
            value = {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
        return kind(**dict(model.model_validate(value, context=info.context)))

    return build


def each_entry(entries: Any, build: Callable[[str, Any], T]) -> Any:
    """Build the values of a mapping by their names, and raise the mistakes of all of them.

    What is no mapping is returned as it is, for pydantic to refuse.
    """
    if not isinstance(entries, Mapping):
        return entries
    mistakes = Mistakes()
    built = {}
    for name, value in entries.items():
        with mistakes.below(name):
            built[name] = build(name, value)
    mistakes.raise_all()
    return built


def some_distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    """Refuse an empty list, and repeated values, each where it is repeated."""
    mistakes, seen = Mistakes(), set()
    if not values:
        mistakes.add("want at least one entry")
    for index, value in enumerate(values):
        if value in seen:
            mistakes.add(f"{shown(value)} is there twice", index)
        seen.add(value)
    mistakes.raise_all()
    return values


def matching(pattern: str, wanted: str) -> AfterValidator:
    """Return a check that the whole text matches a regular expression, which `wanted` puts in words."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"got {shown(text)}, want {wanted}")
        return text

    return AfterValidator(check)


NameRule = matching(
    r"(?=.{1,100}$)[a-z0-9]+(-[a-z0-9]+)*",
    "lowercase letters and digits, single dashes between them, 100 characters at most",
)
"""Of studies and of their own models: names of files and folders."""


def _one_of(choices: tuple[Any, ...]) -> BeforeValidator:
    """Return a check for one of some values and its type; pydantic alone takes `true` and 1.0 for 1."""

    def check(value: Any) -> Any:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise ValueError(f"got {shown(value)}, want {' or '.join(map(shown, choices))}")
        return value

    return BeforeValidator(check)


def _wording(detail: ErrorDetails, keys: Iterable[str]) -> str:
    """Say in the user's terms what pydantic found."""
    kind, message = detail["type"], detail["msg"]
    if kind == MISTAKE:
        return message
    if kind == "extra_forbidden":
        return unknown("key", detail["loc"][-1], keys)
    if kind == "missing":
        return "missing"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    wanted = _WANTED.get(kind, message.removeprefix("Input should be "))
    return f"got {shown(detail['input'])}, want {wanted}"


def _written_place(place: Place) -> Place:
    """Drop the parts of a place that pydantic adds and no user wrote: `(tag)` of a union and `[key]`."""
    return tuple(part for part in place if not str(part).startswith(("(", "[")))


def shown(value: Any) -> str:
    """Show a value much as YAML writes it."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except ValueError:  # Python writes no integer of more than 4,300 digits, and YAML can give one in hexadecimal
        return "a number too long to show"
    return text if len(text) <= 60 else text[:57] + "..."
