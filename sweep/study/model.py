"""The models of a study: a size, and where pretrained weights come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    PlainValidator,
    SerializeAsAny,
    Tag,
    TypeAdapter,
    ValidationInfo,
    field_validator,
)

from lr_sweep.common.errors import unknown
from lr_sweep.common.limits import Count
from lr_sweep.datasets import TASKS
from lr_sweep.trainables.models import FAMILIES, size_type
from lr_sweep.trainables.models.published import MODELS
from lr_sweep.trainables.pretraining.recipe import (
    PretrainRecipe,
    Recipe,
    TaskRecipe,
    endless_tasks,
    in_data_dir,
)
from lr_sweep.trainables.pretraining.weights import shipped_names
from lr_sweep.trainables.run import BodySize, ModelSize

from .validation import (
    MISTAKE,
    NAME,
    Mistakes,
    Strict,
    matching,
    mistake,
    one_of,
    read_record,
    shown,
    some_distinct,
)


def _study_path(value: Any, info: ValidationInfo) -> Any:
    """Turn text into a path, relative to the study file's folder if there is a file; leave other types to pydantic."""
    if not isinstance(value, str):
        return value
    try:
        path = Path(value).expanduser()
        if info.context:
            path = (info.context["folder"] / path).resolve()
            path.stat()
    except FileNotFoundError as error:
        raise ValueError(
            f"nothing is at {path}; paths start from the study file's folder"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"got {shown(value)}: {error}") from error
    return path


def _text_path(value: Any, info: ValidationInfo) -> Any:
    """As `_study_path`, of a file; a path in the data directory is left as it is, since a study does not say where."""
    if isinstance(value, str) and in_data_dir(Path(value)):
        if "\0" in value or ".." in Path(value).parts:
            raise ValueError(
                f"got {shown(value)}, want a path below the data directory, without '..'"
            )
        return Path(value)
    path = _study_path(value, info)
    if info.context and isinstance(value, str) and not path.is_file():
        raise ValueError(
            f"{path} is {'a folder' if path.is_dir() else 'no plain file'}, want a file of text"
        )
    return path


StudyPath = Annotated[Path, BeforeValidator(_study_path)]
_TEXT_FILES: TypeAdapter[tuple[Path, ...]] = TypeAdapter(
    Annotated[
        tuple[Annotated[Path, BeforeValidator(_text_path)], ...], AfterValidator(some_distinct)
    ]
)


def _text(value: Any, context: Any) -> Any:
    if isinstance(value, tuple):
        return _TEXT_FILES.validate_python(value, strict=True, context=context)
    if value != "python-stdlib":
        raise ValueError(f"got {shown(value)}, want python-stdlib or a list of text files")
    return value


def _recipe_from(value: Any, info: ValidationInfo) -> Recipe:
    """Build the recipe on a task of a mapping that names one, else the one on text."""
    if isinstance(value, Mapping) and "task" in value:
        return _task_recipe(dict(value))
    given = value
    with Mistakes() as mistakes:
        if isinstance(value, Mapping) and "text" in value:
            given = {key: option for key, option in value.items() if key != "text"}
            with mistakes.below("text"):
                given["text"] = _text(value["text"], info.context)
        with mistakes.below():
            recipe = read_record(PretrainRecipe, given)
    return recipe


def _task_recipe(given: dict[str, Any]) -> TaskRecipe:
    """Build the recipe on a task; a study has the task's options beside the recipe's own fields."""
    if given["task"] not in (known := endless_tasks()):
        raise mistake(unknown("task to pretrain on", given["task"], known), "task")
    kind = TASKS[given["task"]].Options
    own = [field.name for field in fields(TaskRecipe) if field.name != "options"]
    training = {name: given.pop(name) for name in own if name in given} | {"options": kind()}
    with Mistakes() as mistakes:
        with mistakes.below():
            recipe = read_record(TaskRecipe, training)
        with mistakes.below():
            options: Any = read_record(kind, given, more_keys=own)
    return replace(recipe, options=options)


_REPOSITORY_PART = r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_REPOSITORY = rf"(?!.*(--|\.\.))(?!.*\.git$)({_REPOSITORY_PART}/)?{_REPOSITORY_PART}"
"""The rule of the hub's own library."""
_REVISION = r"(?=.{1,200}$)(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*"
"""Git's names of branches that are names of files, too: the local cache has a file for each."""


class HubWeights(Strict):
    """Published weights on the Hugging Face hub."""

    hub: Annotated[str, matching(_REPOSITORY, "a repository, owner/name")]
    """Repository, `owner/name`."""
    revision: Annotated[str, matching(_REVISION, "a commit, branch or tag")] | None = None
    """Commit, branch or tag; null: the newest."""
    sha256: Annotated[str, matching(r"[0-9a-f]{64}", "64 lowercase hex digits")] | None = None
    """Checksum that `model.safetensors` must have; null: any."""


class ShippedWeights(Strict):
    """Weights that come with this program, the same bytes on every machine."""

    shipped: Annotated[str, one_of("shipped weights", shipped_names())]
    """`python-2x64` (GPT-2 on Python's sources, of quickstart) or `books-2x128` (on English books)."""


class FolderWeights(Strict):
    """Weights on this machine."""

    folder: StudyPath
    """Folder with `model.safetensors`, from the study file's."""


class PretrainedHere(Strict):
    """Weights that this program pretrains, on text or on a task."""

    pretrain: Annotated[Recipe, PlainValidator(_recipe_from)]
    """Trains the weights: on text, or on a `task`."""


SOURCES = ("shipped", "hub", "folder", "pretrain")
"""Keys of `pretrained`, of which a model has one."""


def _source_tag(value: Any) -> str | None:
    """Return the tag of the kind of weights, by its key; None: not exactly one of the keys."""
    chosen = [key for key in SOURCES if isinstance(value, Mapping) and key in value]
    return f"({chosen[0]})" if len(chosen) == 1 else None


Pretrained = Annotated[
    Annotated[ShippedWeights, Tag("(shipped)")]
    | Annotated[HubWeights, Tag("(hub)")]
    | Annotated[FolderWeights, Tag("(folder)")]
    | Annotated[PretrainedHere, Tag("(pretrain)")],
    Discriminator(
        _source_tag,
        custom_error_type=MISTAKE,
        custom_error_message=f"want exactly one of: {', '.join(SOURCES)}",
    ),
]


def _size_from(value: Any, info: ValidationInfo) -> BodySize:
    return read_record(size_type(info.data.get("family", "gpt2")), value)


class StudyModel(Strict):
    """A backbone: its size, and where pretrained weights for it come from."""

    base: Annotated[str, one_of("model", MODELS)] | None = None
    """Known model, such as `gpt2`, whose family, size and weights it has; null: that of its name."""
    family: Annotated[str, one_of("family", FAMILIES)] = "gpt2"
    """Kind of backbone: gpt2, lstm, bert, t5, longformer or vit; implied by a known model."""
    size: Annotated[SerializeAsAny[BodySize], PlainValidator(_size_from)]
    """Layers, width and others of its family; implied by a known model."""
    depth: Count | None = None
    """Only so many first layers (Lu et al. 2021, section 3.10); null: all."""
    pretrained: Pretrained | None = None
    """Source of weights: one of those below; null: the hub for a known model, else none."""

    @property
    def body_size(self) -> BodySize:
        """Size of the body that is trained; pretrained weights have `size`."""
        return self.size if self.depth is None else replace(self.size, layers=self.depth)

    @field_validator("size")
    @classmethod
    def _check_heads(cls, size: BodySize) -> BodySize:
        if size.width % (heads := getattr(size, "heads", 1)):
            raise mistake(f"{heads} heads do not divide width = {size.width}", "heads")
        return size

    @field_validator("depth")
    @classmethod
    def _check_depth(cls, depth: int | None, info: ValidationInfo) -> int | None:
        size = info.data.get("size")
        if depth is not None and size and depth > size.layers:
            raise ValueError(f"got {depth}, want at most size.layers = {size.layers}")
        return depth

    @field_validator("pretrained")
    @classmethod
    def _check_positions(cls, source: Pretrained | None, info: ValidationInfo) -> Pretrained | None:
        size = info.data.get("size")
        if not size or not isinstance(source, PretrainedHere):
            return source
        if not isinstance(size, ModelSize):
            raise mistake(
                f"family {size.family} cannot be pretrained here, only gpt2; want hub or folder",
                "pretrain",
            )
        if source.pretrain.num_tokens > size.positions:
            message = f"{source.pretrain.num_tokens} tokens are more than size.positions = {size.positions}"
            key = "task" if isinstance(source.pretrain, TaskRecipe) else "num_tokens"
            raise mistake(message, "pretrain", key)
        return source

    @classmethod
    def named(cls, name: str, value: Any, wanted_by: str | None, context: Any) -> StudyModel:
        """Build a model from its entry in a study; `wanted_by` is a variant that starts from weights."""
        if not isinstance(value, Mapping):
            return cls.model_validate(value)
        fields: dict[str, Any] = {}
        base = value.get("base")
        if known := MODELS.get(base if isinstance(base, str) else name):
            weights = {"hub": known.hub, "revision": known.revision, "sha256": known.sha256}
            fields = {"family": known.family, "size": known.size, "pretrained": weights}
        fields |= {key: given for key, given in value.items() if given is not None}
        if "size" not in fields and base is None:
            raise ValueError(f"{unknown('model', name, MODELS)}; or give a `size` to define one")
        with Mistakes() as mistakes:
            with mistakes.below():
                NAME.validate_python(name)
            if wanted_by and "pretrained" not in fields:
                mistakes.add(
                    f"variant {wanted_by!r} needs `pretrained`, with one of: {', '.join(SOURCES)}"
                )
            with mistakes.below():
                model = cls.model_validate(fields, context=context)
                if known and model.size != known.size:
                    problem = f"{base or name!r} is a known model of another size"
                    mistakes.add(f"{problem}; leave `size` out, or choose another name", "size")
        return model
