"""Strict pydantic models that report all mistakes at once, in the words of the study file.

Every mistake becomes a pydantic error of the type `MISTAKE` with its final text, at the keys and indices (`loc`) where
the user wrote it, so a nested check can raise several and `sweep.study.file` only has to add line numbers.
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
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from lr_sweep.common.errors import unknown

MISTAKE = "mistake"
MAX_MISTAKES = 100
"""More are not looked for: in a file that a program wrote wrongly there may be 100,000."""
MORE = f"there are more mistakes; these are the first {MAX_MISTAKES}"
Loc = tuple[str | int, ...]
"""Keys and indices that lead to a value, as pydantic's errors have them."""
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
"""Gradient steps; sums of them fit into int64."""
Fraction = Field(ge=0, lt=1)
Seed = Field(ge=0, lt=2**63)  # records hold seeds as int64
Positive = Field(gt=0, le=1e30)
"""Numbers for computations in float32, which ends at 3e38."""
LearningRate = Field(gt=0, le=10)


def mistake(message: str, *loc: str | int) -> ValidationError:
    """Return the error of one mistake, below the value that is being validated."""
    return ValidationError.from_exception_data("study", [_detail(message, loc)])


def _detail(message: str, loc: Loc) -> InitErrorDetails:
    error = PydanticCustomError(MISTAKE, "{message}", {"message": message})
    return InitErrorDetails(type=error, loc=loc, input=None)


class Mistakes:
    """Gathers mistakes, to raise them together."""

    def __init__(self) -> None:
        self._details: list[InitErrorDetails] = []

    def add(self, message: str, *loc: str | int) -> None:
        """Add a mistake below the value that is being validated; raise them all where there are too many."""
        if len(self._details) == MAX_MISTAKES:
            self._details.append(_detail(MORE, ()))
            self.raise_all()
        self._details.append(_detail(message, loc))

    @contextmanager
    def below(self, *loc: str | int, keys: Iterable[str] = ()) -> Iterator[None]:
        """Add the mistakes that the block raises, below `loc`; `keys` are the valid ones there."""
        try:
            yield
        except ValidationError as error:
            for detail in error.errors():
                if detail["type"] == "default_factory_not_called":
                    continue  # a default made of a field that has a mistake of its own
                # Leave out what pydantic adds to a location: `(tag)` of a union and `[key]`.
                written = [part for part in detail["loc"] if not str(part).startswith(("(", "["))]
                self.add(_wording(detail, keys), *loc, *written)
        except ValueError as error:
            self.add(str(error), *loc)

    def raise_all(self) -> None:
        """Raise the mistakes as one `ValidationError`, if there are any."""
        if self._details:
            raise ValidationError.from_exception_data("study", self._details)


class Strict(BaseModel):
    """Base of a study's models: frozen; converts no types; refuses unknown keys and names a similar one."""

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
    """Return a dataclass's fields for `create_model`, with limits (`Field`, validators) by field name."""
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

    For `PlainValidator`: `trainables` and `datasets` do not import pydantic, so their records are dataclasses.
    """
    model = create_model(kind.__name__, __base__=Strict, **dataclass_fields(kind, limits))

    def build(value: Any, info: Any) -> T:
        if isinstance(value, kind):
            value = vars(value)
        return kind(**dict(model.model_validate(value, context=info.context)))

    return build


def each_entry(entries: Any, build: Callable[[str, Any], T]) -> Any:
    """Build a mapping's values by their names and raise all mistakes; return other types, for pydantic to refuse."""
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


def or_list(kinds: tuple[type, ...], wanted: str) -> Discriminator:
    """Return what tells a list from a value of the kinds; `wanted` is the text of the mistake for anything else."""
    return Discriminator(
        lambda value: "(list)" if isinstance(value, tuple) else "(one)" if isinstance(value, kinds) else None,
        custom_error_type=MISTAKE,
        custom_error_message=f"want {wanted}",
    )


def matching(pattern: str, wanted: str) -> AfterValidator:
    """Return a check that a text matches a regular expression, which `wanted` says in words."""
    return AfterValidator(_wants(lambda text: bool(re.fullmatch(pattern, text)), wanted))


def _wants(fits: Callable[[Any], bool], wanted: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not fits(value):
            raise ValueError(f"got {shown(value)}, want {wanted}")
        return value

    return check


NameRule = matching(
    r"(?=.{1,100}$)[a-z0-9]+(-[a-z0-9]+)*",
    "lowercase letters and digits, single dashes between them, 100 characters at most",
)
"""Of studies and of their own models: names of files and folders."""


def _one_of(choices: tuple[Any, ...]) -> BeforeValidator:
    """Return a check for one of some values, of the same type; pydantic's own accepts `true` and 1.0 for 1."""

    def fits(value: Any) -> bool:
        return any(value == choice and type(value) is type(choice) for choice in choices)

    return BeforeValidator(_wants(fits, " or ".join(map(shown, choices))))


def _wording(detail: ErrorDetails, keys: Iterable[str]) -> str:
    """Return the text of a mistake that pydantic found."""
    kind, message = detail["type"], detail["msg"]
    match kind:
        case "extra_forbidden":
            return unknown("key", detail["loc"][-1], keys)
        case "missing":
            return "missing"
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
    return text if len(text) <= 60 else text[:57] + "..."
