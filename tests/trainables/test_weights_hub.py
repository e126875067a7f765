"""Weights of the Hugging Face hub: looked up in the cache, fetched, and what the errors say without a network."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.tests.support.tiny_study import SIZE as TINY
from lr_sweep.tests.support.tiny_study import write_config, write_weights
from lr_sweep.trainables.pretraining.weights import WeightsError, WeightsSource, check_weights_fit, find_weights

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
    assert message.startswith("model.safetensors of openai-community/gpt2@607a30d is not in the local Hugging Face")
    assert "Name or service not known" in message
    assert "`pretrained: {folder: PATH}`" in message
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


def test_weights_in_the_hub_s_cache_without_their_config_are_not_enough(empty_hub: Path) -> None:
    """Earlier versions of this program left them so."""
    snapshot = empty_hub / "models--openai-community--gpt2" / "snapshots" / str(GPT2.revision)
    write_weights(snapshot)
    (snapshot / "config.json").unlink()
    assert find_weights(GPT2, download=False) is None
    with pytest.raises(WeightsError, match=r"^config\.json of openai-community/gpt2@607a30d is not"):
        find_weights(GPT2, download=True)


COMMIT = "c0ffee" + "0" * 34


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, list[str]]]:
    """A hub on this machine: the folder of its repository `lab/mine`, and what it was asked to send."""
    served, sent = tmp_path / "served", list[str]()
    served.mkdir()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            name = self.path.rpartition("/")[2]
            found = self.path.startswith("/lab/mine/resolve/") and (served / name).is_file()
            self.send_response(200 if found else 404)
            content = (served / name).read_bytes() if found else b""
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            if not found:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.end_headers()
            if self.command == "GET":
                sent.append(name)
                self.wfile.write(content)

        do_GET = do_HEAD  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield served, sent
    server.shutdown()
    server.server_close()


MINE = WeightsSource(hub="lab/mine")


def test_config_and_weights_are_fetched(hub: tuple[Path, list[str]]) -> None:
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
    assert find_weights(MINE, download=True) == folder
    assert sent == ["config.json", "model.safetensors", "config.json"]


def test_weights_of_another_family_are_refused_before_they_are_fetched(hub: tuple[Path, list[str]]) -> None:
    served, sent = hub
    write_weights(served, TINY)
    write_config(served, TINY, model_type="gpt_neox")
    with pytest.raises(WeightsError, match=r'config\.json: model_type: got "gpt_neox", want \'gpt2\''):
        find_weights(MINE, download=True)
    assert sent == ["config.json"]


@pytest.mark.parametrize("lacking", ["model.safetensors", "config.json"])
def test_a_repository_without_the_files_is_reported(hub: tuple[Path, list[str]], lacking: str) -> None:
    served, _ = hub
    write_weights(served, TINY)
    (served / lacking).unlink()
    with pytest.raises(WeightsError, match=r"the repository lab/mine has no model\.safetensors or no config\.json: "):
        find_weights(MINE, download=True)
