"""Where pretrained weights come from: a folder, or the Hugging Face hub; always found locally before asking outside."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from safetensors import safe_open

from datasets.files import hash_file
from trainables.run import ModelSize

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
        if not (folder / "model.safetensors").is_file():
            raise WeightsError(
                f"no pretrained weights at {folder}: wanted a folder with model.safetensors, as save_pretrained writes "
                f"it. Make one with `python -m sweep pretrain`, or correct `pretrained: {{folder: ...}}` in the study."
            )
    else:
        found = _hub_folder(source, download=download)
        if found is None:
            return None
        folder = found
    _verify(folder, source)
    return folder


def check_weights_fit(folder: Path, size: ModelSize) -> None:
    """Compare the header of `model.safetensors`, and `config.json` for the heads, with a model's size.

    Raises:
        WeightsError: they are another model's, or unreadable.
    """
    saved = _saved_size(folder)
    wrong = {name: value for name, value in saved.items() if value != getattr(size, name)}
    if wrong:
        got = ", ".join(f"{name}: {value}" for name, value in saved.items())
        raise WeightsError(f"the weights in {folder} have {{{got}}}, the study's model is {asdict(size)}. Correct one.")


def _saved_size(folder: Path) -> dict[str, int]:
    path = folder / "model.safetensors"
    try:
        with safe_open(path, framework="numpy") as file:
            shapes = {name.removeprefix("transformer."): file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # safetensors raises its own type, OSError or ValueError by what is wrong
        raise WeightsError(f"{path} cannot be read as safetensors: {error}") from error
    if "wpe.weight" not in shapes:
        raise WeightsError(f"{path} is not of a GPT-2: it has no tensor wpe.weight")
    positions, width = shapes["wpe.weight"]
    found = {"layers": sum(name.endswith(".ln_1.weight") for name in shapes), "width": width, "positions": positions}
    config = folder / "config.json"
    heads = json.loads(config.read_text()).get("n_head") if config.is_file() else None
    return found | ({} if heads is None else {"heads": heads})


def weights_checksum(folder: Path) -> str:
    """Return the sha256 of `model.safetensors`, read once a process for an unchanged file."""
    path = folder / "model.safetensors"
    return _checksum_at(path, path.stat().st_mtime_ns, path.stat().st_size)


@cache
def _checksum_at(path: Path, mtime_ns: int, size: int) -> str:
    return hash_file(path)


def _verify(folder: Path, source: WeightsSource) -> None:
    if source.sha256 is None:
        return
    got = weights_checksum(folder)
    if got != source.sha256:
        raise WeightsError(
            f"{folder / 'model.safetensors'} has sha256 {got}, wanted {source.sha256} ({source}). "
            f"Delete it and fetch it again."
        )


def _hub_folder(source: WeightsSource, *, download: bool) -> Path | None:
    # Imported late: takes a second that random models need not spend.
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache

    file: dict[str, Any] = {"repo_id": source.hub, "filename": "model.safetensors", "revision": source.revision}
    cached = try_to_load_from_cache(**file)  # looks at the disk alone, where `local_files_only` may ask the network
    if isinstance(cached, str):
        return Path(cached).parent
    if not download:
        return None
    log.info("fetching %s from the Hugging Face hub", source)
    try:
        # Asked once first: without a network a download repeats the question for 23 seconds.
        get_hf_file_metadata(hf_hub_url(**file), timeout=ANSWER_TIMEOUT_S)
        return Path(hf_hub_download(**file)).parent
    except Exception as error:  # network, authorisation, full disk: the hub's client has a type for each
        raise WeightsError(_not_to_be_had(source, error)) from error


def _not_to_be_had(source: WeightsSource, error: Exception) -> str:
    offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
    return (
        f"the weights {source} are not in the local Hugging Face cache and could not be fetched{offline}: "
        f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}. With a network: "
        f"the same command again. Without: put a folder with their model.safetensors on this machine and "
        f"name it in the study: `pretrained: {{folder: PATH}}`."
    )
