"""Where pretrained weights come from: a folder, or the Hugging Face hub, whose local cache is looked up first."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import (
    Fields,
    ReadFields,
    hash_file,
    hash_once,
    is_changed,
    open_plain,
    read_plain,
)
from lr_sweep.trainables.models import load_family
from lr_sweep.trainables.pretraining import fit
from lr_sweep.trainables.run import BodySize

if TYPE_CHECKING:
    from lr_sweep.trainables.numerics import Tensors

SHIPPED = Path(__file__).with_name("shipped")
"""A folder of weights for each name that a study can give; made by `data --pretrain`, with recipe and checksums."""
WEIGHTS, CONFIG, FACTS = "model.safetensors", "config.json", "pretraining.json"
"""Files of a folder of weights. The last one has the checksum of the first; only pretraining here writes it."""
FILES = "files_sha256"
"""The key of that file with the checksums of all others; files of earlier versions lack it."""
SAVE = (
    "save them by transformers as one file, `save_pretrained(FOLDER, max_shard_size='1TB')`, and name that in the "
    "study: `pretrained: {folder: FOLDER}`"
)
"""What to do with weights that are elsewhere or in another form."""
MAX_JSON = 1_000_000
ANSWER_TIMEOUT_S = 10.0
"""A hub that stays silent for so long counts as unreachable."""

log = logging.getLogger(__name__)


class WeightsError(UserError):
    """Pretrained weights are missing or are not those of the model; the message says what was got and wanted."""


@dataclass(frozen=True, kw_only=True)
class WeightsSource:
    """A `save_pretrained` folder by path, a hub repository at a revision, or weights of this program; exactly one."""

    folder: str | None = None
    shipped: str | None = None
    """Name of weights that come with this program; their path differs between machines."""
    hub: str | None = None
    """Repository, such as `openai-community/gpt2`."""
    revision: str | None = None
    """Commit of the repository; None: its newest."""
    sha256: str | None = None
    """Wanted checksum of `model.safetensors`; None: whatever is there."""
    family: str = "gpt2"
    """Kind of model that they are of, a name in `trainables.models.FAMILIES`."""

    def __str__(self) -> str:
        if self.folder is not None or self.shipped is not None:
            return self.folder or f"the shipped weights {self.shipped}"
        return f"{self.hub}@{self.revision[:7]}" if self.revision else str(self.hub)


def find_weights(source: WeightsSource, *, download: bool) -> Path | None:
    """Return the local folder of the weights; None if they are not here and `download` is False.

    Raises WeightsError if they cannot be fetched, or are not the wanted bytes.
    """
    if source.hub is None:
        folder = SHIPPED / source.shipped if source.shipped else Path(str(source.folder))
        if not (folder / WEIGHTS).is_file():
            raise WeightsError(f"no {WEIGHTS} in {folder}: {SAVE}")
    else:
        weights = _cached(source)
        if weights is not None and (weights.parent / CONFIG).is_file():
            folder = weights.parent
        elif download:
            folder = _fetch(source)
        else:
            return None
    if source.sha256 is not None and (got := weights_checksum(folder)) != source.sha256:
        raise WeightsError(
            f"{folder / WEIGHTS} has sha256 {got}, wanted {source.sha256} ({source}). Delete it and fetch it again."
        )
    if (folder / FACTS).exists():
        check_made_here(folder)
    return folder


def shipped_names() -> list[str]:
    """Return the names of the weights that come with this program."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{WEIGHTS}"))


def made_here_as(folder: Path) -> str:
    """Return what tables call weights that this program pretrained on text, by their `pretraining.json`."""
    facts = _read_object(folder / FACTS)
    return describe_training(facts["size"], facts["recipe"], facts["text"])


def describe_training(size: ReadFields, recipe: ReadFields, text: str) -> str:
    """Return what tables call weights that were trained on text, by the fields of their size and recipe."""
    tokens = recipe["num_steps"] * recipe["batch_size"] * recipe["num_tokens"]
    return (
        f"byte-level GPT-2 of {size['layers']} layers x width {size['width']}, trained for {recipe['num_steps']} steps "
        f"({tokens / 1e6:.1f} MB) on {text}"
    )


def check_weights_fit(folder: Path, size: BodySize) -> None:
    """Raise WeightsError, with every mistake of `config.json` and tensors, if a body cannot start from them."""
    if mistakes := [
        *fit.config_mistakes(folder, size.family, size),
        *fit.tensor_mistakes(folder, size),
    ]:
        raise WeightsError(_unusable(str(folder), size.family, mistakes))


def load_weights(folder: Path, family: str = "gpt2") -> Tensors:
    """Read the body's tensors from a `save_pretrained` folder, float32, by name; raises WeightsError for NaN in them.

    Infinity counts as NaN does.
    """
    from safetensors.torch import load_file  # imports torch, which a look at a study does not need

    read = load_family(family).body_tensors(load_file(folder / WEIGHTS))
    tensors = {name: tensor.float() for name, tensor in read.items()}
    broken = [name for name, tensor in tensors.items() if not tensor.double().sum().isfinite()]
    for mistake in fit.listed(" has NaN or infinity in", broken):
        raise WeightsError(
            f"{folder}/{mistake}. Save the weights again, or name others in the study."
        )
    return tensors


def check_made_here(folder: Path) -> None:
    """Raise WeightsError if weights that this program pretrained do not have the checksum that it wrote down."""
    with _readable(folder):
        damage = weights_damage(folder)
    if damage:
        raise WeightsError(
            f"the weights in {folder} are damaged: {damage}. Runs that began from the intact ones are kept. Put an "
            f"intact copy there, or delete the folder: `run` and `data --pretrain` make pretrained "
            f"weights again, on the same machine and torch to the same bytes; runs from other bytes are new runs. If "
            f"you changed the weights on purpose, delete {FACTS} there."
        )


def weights_damage(folder: Path) -> str | None:
    """Return what is wrong with weights that were pretrained here; raises OSError if a file may not be read."""
    try:
        facts = _read_object(folder / FACTS)
        recorded = facts.get("weights_sha256")
        # safetensors says "no such file" of one that may not be read.
        open_plain(folder / WEIGHTS).close()
        got = hash_once(folder / WEIGHTS)
        # It checks the header against the file's size.
        with safe_open(folder / WEIGHTS, framework="numpy"):
            pass
        changed = [
            name
            for name, sha256 in facts.get(FILES, {}).items()
            if hash_file(folder / name) != sha256
        ]
    except (
        SafetensorError,
        FileNotFoundError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as error:
        return f"cannot be read ({error})"
    if recorded not in (None, got):
        return f"its weights have sha256 {got}, {FACTS} says {recorded}"
    return f"{', '.join(changed)}: the sha256 is not the one that {FACTS} says" if changed else None


def _read_object(path: Path) -> Fields:
    """Read JSON; raises ValueError if it is no object, or another than what was written."""
    facts: Fields = json.loads(read_plain(path, MAX_JSON))
    if not isinstance(facts, dict):
        raise ValueError(f"{path.name} is no JSON object")
    if is_changed(facts):
        raise ValueError(f"the checksum of {path.name} is not that of its content")
    return facts


def weights_checksum(folder: Path) -> str:
    """Return the sha256 of `model.safetensors`, read once a process if unchanged; raises WeightsError if unreadable."""
    with _readable(folder):
        return hash_once(folder / WEIGHTS)


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = (
            f"cannot read {error.filename or folder}: {error.strerror}. Make it readable for you."
        )
        raise WeightsError(message) from error


def _unusable(where: str, family: str, mistakes: list[str]) -> str:
    lines = "".join(f"\n  {mistake}" for mistake in mistakes)
    return (
        f"the weights in {where} are not what the study's model computes:{lines}\n"
        f"Correct the model's size in the study, or name weights of a plain {family} of this size."
    )


def _cached(source: WeightsSource) -> Path | None:
    # Imported late: takes a second that random models need not spend.
    from huggingface_hub import try_to_load_from_cache

    assert source.hub is not None
    # Looks at the disk alone, where `local_files_only` may ask the network.
    path = try_to_load_from_cache(source.hub, WEIGHTS, revision=source.revision)
    return Path(path) if isinstance(path, str) else None


def _fetch(source: WeightsSource) -> Path:
    """Fetch `config.json`, and weights if that is of a model computed here."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    log.info("fetching %s from the Hugging Face hub", source)
    file: Fields = {"repo_id": source.hub, "revision": source.revision}
    try:
        # Asked once first: without a network a download repeats the question for 23 seconds.
        get_hf_file_metadata(hf_hub_url(filename=WEIGHTS, **file), timeout=ANSWER_TIMEOUT_S)
        config = Path(hf_hub_download(filename=CONFIG, **file))
        if not (mistakes := fit.config_mistakes(config.parent, source.family, None)):
            return Path(hf_hub_download(filename=WEIGHTS, **file)).parent
    # Network, authorisation, full disk: the hub's client has a type for each.
    except Exception as error:
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        message = str(error).splitlines()[0] if str(error) else "no message"
        problem = f"{type(error).__name__}: {message}"
        raise WeightsError(
            f"{WEIGHTS} and {CONFIG} of {source} are not in the local Hugging Face cache and could not be "
            f"fetched{offline}: {problem}. With a network: the same command again. Without, or if the repository has "
            f"no {WEIGHTS}: {SAVE}"
        ) from error
    raise WeightsError(_unusable(str(source), source.family, mistakes))
