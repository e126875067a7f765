"""Weights of a folder or of the Hugging Face hub: looked up, verified, fetched, and what the errors say."""

from __future__ import annotations

import dataclasses
import json
import math
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lr_sweep.tests.support.servers.weights_hub import COMMIT, MINE, hub  # noqa: F401 (a fixture)
from lr_sweep.tests.support.tiny_study import SIZE as TINY
from lr_sweep.tests.support.tiny_study import write_weights
from lr_sweep.trainables.pretraining.weights import (
    FACTS,
    WeightsError,
    WeightsSource,
    check_weights_fit,
    find_weights,
    load_weights,
    shipped_names,
    weights_checksum,
)
from lr_sweep.trainables.run import ModelSize

Hub = tuple[Path, list[str]]
GPT2 = WeightsSource(hub="openai-community/gpt2", revision="607a30d783dfa663caf39e06633721c8d4cfcd7e")


def _no_network(*arguments: Any, **options: Any) -> None:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.fixture
def empty_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing in its Hugging Face cache and no network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("socket.getaddrinfo", _no_network)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return tmp_path / "hub"


def test_weights_that_are_not_here_are_not_asked_for_by_a_look(
    empty_hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: pytest.fail("asked the network"))
    assert find_weights(GPT2, download=False) is None


def test_with_no_network_it_is_said_within_seconds(empty_hub: Path, capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with pytest.raises(WeightsError) as caught:
        find_weights(GPT2, download=True)
    assert time.monotonic() - began < 10
    message = str(caught.value)
    assert message.startswith("model.safetensors and config.json of openai-community/gpt2@607a30d are not in the local")
    assert "Name or service not known" in message
    assert "`pretrained: {folder: FOLDER}`" in message
    assert capfd.readouterr().err == ""


def test_offline_mode_is_named(empty_hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: pytest.fail("asked the network"))
    with pytest.raises(WeightsError, match=r"could not be fetched \(HF_HUB_OFFLINE is set\)"):
        find_weights(GPT2, download=True)


def test_weights_in_the_hub_s_cache_are_found_and_verified(empty_hub: Path, tmp_path: Path) -> None:
    assert GPT2.revision
    snapshot = empty_hub / "models--openai-community--gpt2" / "snapshots" / GPT2.revision
    write_weights(snapshot)
    assert find_weights(GPT2, download=False) == snapshot
    with pytest.raises(WeightsError, match="Delete it and fetch it again"):
        find_weights(dataclasses.replace(GPT2, sha256="0" * 64), download=False)


def test_config_and_weights_are_fetched(hub: Hub) -> None:  # noqa: F811
    served, sent = hub
    write_weights(served, TINY)
    assert find_weights(MINE, download=False) is None
    folder = find_weights(MINE, download=True)
    assert folder is not None
    assert (sent, folder.name) == (["config.json", "model.safetensors"], COMMIT)
    check_weights_fit(folder, TINY)
    assert find_weights(MINE, download=False) == folder
    (folder / "config.json").resolve().unlink()  # as an earlier version of this program left the cache
    (folder / "config.json").unlink()
    assert find_weights(MINE, download=False) is None
    assert find_weights(MINE, download=True) == folder
    assert sent == ["config.json", "model.safetensors", "config.json"]


@pytest.mark.parametrize("lacking", ["model.safetensors", "config.json"])
def test_a_repository_without_the_files_is_reported(hub: Hub, lacking: str) -> None:  # noqa: F811
    served, _ = hub
    write_weights(served, TINY)
    (served / lacking).unlink()
    with pytest.raises(WeightsError, match=r"of lab/mine are not .*EntryNotFoundError.*max_shard_size='1TB'"):
        find_weights(MINE, download=True)


def test_other_bytes_than_wanted_are_refused(tmp_path: Path) -> None:
    folder = write_weights(tmp_path / "weights")
    right = WeightsSource(folder=str(folder), sha256=weights_checksum(folder))
    assert find_weights(right, download=False) == folder
    with pytest.raises(WeightsError, match=r"has sha256 [0-9a-f]{64}, wanted 0000"):
        find_weights(dataclasses.replace(right, sha256="0" * 64), download=False)
    write_weights(folder, dataclasses.replace(TINY, width=32))  # a file that changes is read again
    with pytest.raises(WeightsError, match="has sha256"):
        find_weights(right, download=False)


def test_weights_in_another_form_are_reported_with_how_to_save_them(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(WeightsError, match=r"no model\.safetensors in .*max_shard_size='1TB'"):
        find_weights(WeightsSource(folder=str(tmp_path)), download=False)


@pytest.mark.parametrize(("value", "dtype"), [(math.nan, torch.float32), (-math.inf, torch.bfloat16)])
def test_weights_that_are_not_finite_are_refused_by_file_and_tensor(
    value: float, dtype: torch.dtype, tmp_path: Path
) -> None:
    folder = write_weights(tmp_path / "weights")
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(folder / "model.safetensors").items()}
    tensors["h.0.ln_1.bias"][3] = value
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(WeightsError, match=r"weights/model\.safetensors has NaN or infinity in h\.0\.ln_1\.bias\."):
        load_weights(folder)


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_weights_are_the_recorded_bytes_of_a_model_of_their_size(name: str) -> None:
    folder = find_weights(WeightsSource(shipped=name), download=False)  # compares checksums
    assert folder is not None
    facts = json.loads((folder / FACTS).read_text())
    size = ModelSize(**facts["size"])
    check_weights_fit(folder, size)
    assert name.endswith(f"{size.layers}x{size.width}")
    assert facts["held_out_bits_per_byte"] < 0.5 * facts["held_out_bits_per_byte_before"]
