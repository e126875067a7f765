"""The models of a study: a size, and where pretrained weights come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    TypeAdapter,
    ValidationInfo,
    field_validator,
)

from sweep.errors import unknown
from sweep.validation import (
    AtLeast1,
    LearningRate,
    Mistakes,
    NameRule,
    Seed,
    Steps,
    Strict,
    dataclass_from,
    matching,
    shown,
    some_distinct,
)
from trainables.models import MODELS, KnownModel
from trainables.recipe import PretrainRecipe
from trainables.run import ModelSize


def _study_path(value: Any, info: ValidationInfo) -> Any:
    """Turn text into a path, from the study file's folder where there is one; leave other types to pydantic."""
    if not isinstance(value, str):
        return value
    try:
        path = Path(value).expanduser()
        if info.context:
            path = (info.context["folder"] / path).resolve()
            path.stat()
    except FileNotFoundError as error:
        raise ValueError(f"nothing is at {path}; paths start from the study file's folder") from error
    except OSError as error:
        raise ValueError(f"got {shown(value)}: {error.strerror}") from error
    except (RuntimeError, ValueError) as error:  # no such user's home, a loop of links; a path with a null byte
        raise ValueError(f"got {shown(value)}: {error}") from error
    return path


def _plain_file(path: Path, info: ValidationInfo) -> Path:
    if info.context and not path.is_file():
        raise ValueError(f"{path} is {'a folder' if path.is_dir() else 'no plain file'}, want a file of text")
    return path


StudyPath = Annotated[Path, BeforeValidator(_study_path)]
_NAME = TypeAdapter(Annotated[str, NameRule])
_TEXT_FILES = TypeAdapter(
    Annotated[tuple[Annotated[StudyPath, AfterValidator(_plain_file)], ...], AfterValidator(some_distinct)]
)


def _text(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, tuple):
        return _TEXT_FILES.validate_python(value, strict=True, context=info.context)
    if value != "python-stdlib":
        raise ValueError(f"got {shown(value)}, want python-stdlib or a list of text files")
    return value


_size_from = dataclass_from(
    ModelSize,
    {"layers": Field(ge=1, le=1000)} | dict.fromkeys(("heads", "width", "positions"), Field(ge=1, le=1_000_000)),
)
_recipe_from = dataclass_from(
    PretrainRecipe,
    {
        "text": BeforeValidator(_text),
        "num_steps": Steps,
        "batch_size": AtLeast1,
        "num_tokens": Field(ge=2, le=1_000_000),
        "learning_rate": LearningRate,
        "seed": Seed,
    },
)


_REPOSITORY_PART = r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_REPOSITORY = rf"(?!.*(--|\.\.))(?!.*\.git$)({_REPOSITORY_PART}/)?{_REPOSITORY_PART}"
"""As the hub's own library checks it."""
_REVISION = r"(?=.{1,200}$)(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*"
"""Of git's names of branches what is the name of a file, too: the local cache has one for each."""


class HubWeights(Strict):
    """Published weights on the Hugging Face hub."""

    hub: Annotated[str, matching(_REPOSITORY, "a repository, owner/name")]
    """Repository, `owner/name`."""
    revision: Annotated[str, matching(_REVISION, "a commit, branch or tag")] | None = None
    """Commit, branch or tag; null: the newest."""
    sha256: Annotated[str, matching(r"[0-9a-f]{64}", "64 lowercase hex digits")] | None = None
    """Wanted checksum of `model.safetensors`; null: any."""


class FolderWeights(Strict):
    """Weights on this machine."""

    folder: StudyPath
    """Holds `model.safetensors`; from the study file's folder."""


class PretrainedHere(Strict):
    """Weights that this program pretrains on text before the runs that need them."""

    pretrain: Annotated[PretrainRecipe, PlainValidator(_recipe_from)]
    """See `trainables.recipe.PretrainRecipe`."""


_SOURCES = {"hub": HubWeights, "folder": FolderWeights, "pretrain": PretrainedHere}


def _source_tag(value: Any) -> str | None:
    """Pick the kind of weights by the one key that only this kind has; None: not one kind."""
    keys = type(value).model_fields if isinstance(value, Strict) else value if isinstance(value, Mapping) else ()
    chosen = [key for key in _SOURCES if key in keys]
    return f"({chosen[0]})" if len(chosen) == 1 else None


WeightsSource = Annotated[
    Annotated[HubWeights, Tag("(hub)")]
    | Annotated[FolderWeights, Tag("(folder)")]
    | Annotated[PretrainedHere, Tag("(pretrain)")],
    Discriminator(
        _source_tag,
        custom_error_type="mistake",
        custom_error_message="want exactly one of: hub, folder, pretrain",
    ),
]


def _heads_divide(size: ModelSize) -> ModelSize:
    mistakes = Mistakes()
    if size.width % size.heads:
        mistakes.add(f"{size.heads} heads do not divide width = {size.width}", "heads")
    mistakes.raise_all()
    return size


class StudyModel(Strict):
    """A backbone: its size, and where pretrained weights for it come from."""

    size: Annotated[ModelSize, PlainValidator(_size_from), AfterValidator(_heads_divide)]
    """A known name implies it (`trainables.models.MODELS`) and allows no other."""
    pretrained: WeightsSource | None = None
    """Null: the hub's weights for a known name, else none, and no pretrained variant may be asked for."""

    @field_validator("pretrained")
    @classmethod
    def _check_context(cls, source: WeightsSource | None, info: ValidationInfo) -> WeightsSource | None:
        size, mistakes = info.data.get("size"), Mistakes()
        if size and isinstance(source, PretrainedHere) and source.pretrain.num_tokens > size.positions:
            message = f"{source.pretrain.num_tokens} tokens are more than size.positions = {size.positions}"
            mistakes.add(message, "pretrain", "num_tokens")
        mistakes.raise_all()
        return source

    @classmethod
    def named(cls, name: str, value: Any, wanted_by: str | None, context: Any) -> StudyModel:
        """Build a model from what stands under its name in a study.

        Args:
            name: known, or the study's own.
            value: a mapping of `size` and `pretrained`, or a model.
            wanted_by: a variant that starts from pretrained weights; None: the study has none.
            context: of the validation, or None.

        Raises:
            ValidationError: wrong values; no pretrained weights where they are wanted; a known name's size changed.
            ValueError: an unknown name without a size.
        """
        if isinstance(value, cls):
            value = {key: getattr(value, key) for key in cls.model_fields}
        if not isinstance(value, Mapping):
            return cls.model_validate(value)
        known = MODELS.get(name)
        fields = _implied(known) | {key: given for key, given in value.items() if given is not None}
        if "size" not in fields:
            raise ValueError(f"{unknown('model', name, MODELS)}; or give a `size` to define one")
        model, mistakes = None, Mistakes()
        with mistakes.below():
            _NAME.validate_python(name)
        with mistakes.below():
            model = cls.model_validate(fields, context=context)
        if wanted_by and "pretrained" not in fields:
            mistakes.add(f"variant {wanted_by!r} needs `pretrained`, with one of: hub, folder, pretrain")
        if known and model and model.size != known.size:
            mistakes.add(f"{name!r} is a known model of another size; leave `size` out, or choose another name", "size")
        mistakes.raise_all()
        assert model, "nothing was wrong with it"
        return model


def _implied(known: KnownModel | None) -> dict[str, Any]:
    """Return what a known name says of itself."""
    if known is None:
        return {}
    weights = HubWeights(hub=known.hub, revision=known.revision, sha256=known.sha256)
    return {"size": known.size, "pretrained": weights}
