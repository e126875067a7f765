"""Where pretrained weights come from: a folder, or the Hugging Face hub; always found locally before asking outside."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from datasets.files import hash_file
from trainables.run import ModelSize
from trainables.weights_config import config_mistakes
from trainables.weights_tensors import tensor_mistakes

WEIGHTS, CONFIG, FACTS = "model.safetensors", "config.json", "pretraining.json"
"""Files of a folder of weights. The last one has the checksum of the first; `trainables.pretrain` alone writes it."""
ANSWER_TIMEOUT_S = 10.0
"""A hub that stays silent for so long counts as unreachable."""

log = logging.getLogger(__name__)


class WeightsError(Exception):
    """Pretrained weights are missing or are not those of the model; the message says what was got and wanted."""


@dataclass(frozen=True, kw_only=True)
class WeightsSource:
    """A `save_pretrained` folder by path, or a hub repository at a revision. Exactly one of the two is set."""

    folder: str | None = None
    """Path of a folder with `model.safetensors`."""
    hub: str | None = None
    """Repository, such as `openai-community/gpt2`."""
    revision: str | None = None
    """Commit of the repository; None: its newest."""
    sha256: str | None = None
    """Wanted checksum of `model.safetensors`; None: whatever is there."""

    def __str__(self) -> str:
        if self.folder is not None:
            return self.folder
        return f"{self.hub}@{self.revision[:7]}" if self.revision else str(self.hub)

    def as_dict(self) -> dict[str, str | None]:
        """Return plain values that the constructor takes."""
        return asdict(self)


def find_weights(source: WeightsSource, *, download: bool) -> Path | None:
    """Return the local folder of the weights, verified; None if they are not here and `download` is False.

    Raises:
        WeightsError: not to be had, or not the wanted bytes.
    """
    if source.folder is not None:
        folder = Path(source.folder)
        if not (folder / WEIGHTS).is_file():
            raise WeightsError(f"no pretrained weights at {folder}: {_what_is_there(folder)}")
    else:
        found = _cached(source)
        if found is None and not download:
            return None
        folder = found or _fetch(source)
    _verify(folder, source)
    return folder


def check_weights_fit(folder: Path, size: ModelSize) -> None:
    """Compare weights, all of their `config.json` and of their tensors, with what `trainables.gpt2` computes of a size.

    Raises:
        WeightsError: this model cannot start from them; the message has every mistake.
    """
    if mistakes := fit_mistakes(folder, size):
        raise WeightsError(_unusable(str(folder), mistakes))


def fit_mistakes(folder: Path, size: ModelSize) -> list[str]:
    """Return why a model of a size cannot start from the weights in a folder; none: it can."""
    return [*config_mistakes(folder, size), *tensor_mistakes(folder, size)]


def check_made_here(folder: Path) -> None:
    """Compare weights that this program pretrained with the checksum that it wrote down.

    Raises:
        WeightsError: they are damaged; the message says what to do.
    """
    try:
        damage = weights_damage(folder)
    except OSError as error:
        raise _unreadable(error, folder) from error
    if damage:
        raise WeightsError(
            f"the weights in {folder} are damaged: {damage}. Runs that began from the intact ones are kept. Put an "
            f"intact copy there (an archive made by `export` has one), or delete the folder: `run` and `pretrain` make "
            f"pretrained weights again, on the same machine and torch to the same bytes; from other bytes, runs are "
            f"new runs. If you changed the weights on purpose, delete {FACTS} there."
        )


def weights_damage(folder: Path) -> str | None:
    """Say what is wrong with weights that were pretrained here, by the checksum in their `pretraining.json`.

    Raises:
        OSError: a file may not be read.
    """
    try:
        text = (folder / FACTS).read_text(encoding="utf-8")
        (folder / WEIGHTS).open("rb").close()  # safetensors says "no such file" of one that may not be read
        got = _checksum(folder)
        with safe_open(folder / WEIGHTS, framework="numpy"):  # checks the header against the file's size
            recorded = json.loads(text).get("weights_sha256")
    except (SafetensorError, FileNotFoundError, ValueError, AttributeError) as error:
        return f"cannot be read ({error})"
    return f"its weights have sha256 {got}, {FACTS} says {recorded}" if recorded not in (None, got) else None


def weights_checksum(folder: Path) -> str:
    """Return the sha256 of `model.safetensors`, read once a process for an unchanged file.

    Raises:
        WeightsError: it cannot be read.
    """
    try:
        return _checksum(folder)
    except OSError as error:
        raise _unreadable(error, folder) from error


def _checksum(folder: Path) -> str:
    path = folder / WEIGHTS
    return _checksum_at(path, path.stat().st_mtime_ns, path.stat().st_size)


@cache
def _checksum_at(path: Path, mtime_ns: int, size: int) -> str:
    return hash_file(path)


def _verify(folder: Path, source: WeightsSource) -> None:
    if source.sha256 is not None and (got := weights_checksum(folder)) != source.sha256:
        raise WeightsError(
            f"{folder / WEIGHTS} has sha256 {got}, wanted {source.sha256} ({source}). Delete it and fetch it again."
        )
    if (folder / FACTS).exists():
        check_made_here(folder)


def _unreadable(error: OSError, folder: Path) -> WeightsError:
    return WeightsError(f"cannot read {error.filename or folder}: {error.strerror}. Make it readable for you.")


def _what_is_there(folder: Path) -> str:
    """Say what a folder without `model.safetensors` has, and how to mend that."""
    again = (
        f'`python -c "from transformers import GPT2LMHeadModel as M; '
        f"M.from_pretrained('{folder}').save_pretrained('NEW', max_shard_size='1TB')\"`"
    )
    if (folder / f"{WEIGHTS}.index.json").exists():
        return (
            f"they are in several files ({WEIGHTS}.index.json lists them), and one is read here. "
            f"Put them into one by {again}, and name NEW in the study."
        )
    if others := sorted(path.name for path in folder.glob("*.bin")):
        return (
            f"it has {others[0]}, and only safetensors are read, because the other format can run code. "
            f"If you trust it, convert it by {again}, and name NEW in the study."
        )
    return (
        "wanted a folder with model.safetensors, as save_pretrained writes it. "
        "Make one with `python -m sweep pretrain`, or correct `pretrained: {folder: ...}` in the study."
    )


def _unusable(where: str, mistakes: list[str]) -> str:
    lines = "".join(f"\n  {mistake}" for mistake in mistakes)
    return (
        f"the weights in {where} are not what the study's model computes:{lines}\n"
        f"Correct the model's size in the study, or name weights of a plain GPT-2 of this size."
    )


def _cached(source: WeightsSource) -> Path | None:
    """Return the folder of the hub's cache that has both files."""
    weights = _cached_file(source, WEIGHTS)
    return weights.parent if weights is not None and (weights.parent / CONFIG).is_file() else None


def _cached_file(source: WeightsSource, name: str) -> Path | None:
    # Imported late: takes a second that random models need not spend.
    from huggingface_hub import try_to_load_from_cache

    assert source.hub is not None
    # Looks at the disk alone, where `local_files_only` may ask the network.
    found = try_to_load_from_cache(source.hub, name, revision=source.revision)
    return Path(found) if isinstance(found, str) else None


def _fetch(source: WeightsSource) -> Path:
    """Fetch what is not in the hub's cache: `config.json`, and weights only if that is of a model computed here."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import RemoteEntryNotFoundError

    log.info("fetching %s from the Hugging Face hub", source)
    weights = _cached_file(source, WEIGHTS)
    first = WEIGHTS if weights is None else CONFIG
    file: dict[str, Any] = {"repo_id": source.hub, "revision": weights.parent.name if weights else source.revision}
    try:
        # Asked once first: without a network a download repeats the question for 23 seconds.
        get_hf_file_metadata(hf_hub_url(filename=first, **file), timeout=ANSWER_TIMEOUT_S)
        config = Path(hf_hub_download(filename=CONFIG, **file))
        if mistakes := config_mistakes(config.parent, None):
            raise WeightsError(_unusable(str(source), mistakes))
        return (weights or Path(hf_hub_download(filename=WEIGHTS, **file))).parent
    except WeightsError:
        raise
    except RemoteEntryNotFoundError as error:
        raise WeightsError(_not_in_repository(source, first if weights else None)) from error
    except Exception as error:  # network, authorisation, full disk: the hub's client has a type for each
        raise WeightsError(_not_to_be_had(source, first, error)) from error


def _not_in_repository(source: WeightsSource, lacking: str | None) -> str:
    return (
        f"the repository {source} has no {lacking or f'{WEIGHTS} or no {CONFIG}'}: its weights are in several files, "
        f"in another format, or of another kind of model. Save a GPT-2 by transformers as one file, "
        f"`save_pretrained(FOLDER, max_shard_size='1TB')`, and name that: `pretrained: {{folder: FOLDER}}`."
    )


def _not_to_be_had(source: WeightsSource, name: str, error: Exception) -> str:
    offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
    what = "weights" if name == WEIGHTS else f"{CONFIG} of the weights"
    verb = "are" if name == WEIGHTS else "is"
    return (
        f"the {what} {source} {verb} not in the local Hugging Face cache and could not be fetched{offline}: "
        f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}. With a network: "
        f"the same command again. Without: put a folder with their {WEIGHTS} and {CONFIG} on this machine and "
        f"name it in the study: `pretrained: {{folder: PATH}}`."
    )
