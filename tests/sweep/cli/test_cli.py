"""Commands that cannot be carried out: the exit code, one message that says what to do, and no traceback.

In this process where that is enough; `test_as_a_user_starts_it` starts Python.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.tiny_study import refused, said, succeeds, sweep, swept, write_study


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = socket.getaddrinfo

    def here_alone(host: Any, *arguments: Any, **options: Any) -> Any:
        if host != "127.0.0.1":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found(host, *arguments, **options)

    monkeypatch.setattr("socket.getaddrinfo", here_alone)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def test_as_a_user_starts_it(tmp_path: Path) -> None:
    output = swept("plan", write_study(tmp_path), "--results", tmp_path / "results")
    assert "4 wanted: 4 new" in output
    code, output = sweep("plan", "quickstar")
    first = output.splitlines()[0]
    assert code == 2
    assert first.startswith("error: unknown study 'quickstar'; did you mean 'quickstart'? valid: bits-small, ")
    assert ", rothermel2021-table1, rothermel2021-table4, lu2021-table1 to lu2021-table21, " in first
    assert first.endswith("each also with -swept, some with -small; or give the path of a .yaml file")


@pytest.mark.parametrize("command", ["plan", "run", "data --pretrain"])
def test_a_study_file_that_is_not_there(command: str, tmp_path: Path) -> None:
    printed = refused(*command.split(), tmp_path / "no.yaml", "--results", tmp_path / "results")
    assert "no.yaml: No such file or directory; shipped studies: bits-small, " in printed
    assert not (tmp_path / "results" / "runs").exists()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("--gpus-per-trial", "1"), "a trial asks for 1 CPU and 1 GPU, but this machine has no such node"),
        (("--cpus", "2", "--gpus-per-trial", "0.5"), "(nodes: 2 CPU and 0 GPU). Ask for less in the study's `resou"),
        (("--cpus", "64"), "--cpus: got 64, want at most 2, the CPUs that this process may use here."),
    ],
)
def test_more_than_this_machine_has_is_refused_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], wanted: str
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("lr_sweep.sweep.plan.placement.cpus_here", lambda: 2)
    printed = refused("run", "mnist-converged", "--results", tmp_path / "results", *options)
    assert wanted in printed
    assert not (tmp_path / "results").exists()


def test_plan_notes_a_machine_that_holds_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lr_sweep.sweep.plan.placement.gpus_here", lambda: 0)
    plan = ("plan", write_study(tmp_path), "--results", tmp_path / "results", "--gpus-per-trial", "1")
    printed = succeeds(*plan, "--cpus", "4")
    assert (
        "note       `run` would refuse this: a trial asks for 1 CPU and 1 GPU, and the machine planned for has "
        in printed
    )
    assert "4 CPU and 0 GPU. Plan for another with --cpus and --gpus" in printed
    assert "note  " not in said(*plan, "--cpus", "4", "--gpus", "1")[1]
    assert "note  " not in said(*plan[:-2])[1]


def test_options_for_gpus_are_refused_without_one_by_plan(tmp_path: Path) -> None:
    protocol = "{evaluate_every: 10, train_examples_evaluated: 100, precision: tf32}"
    plan = ("plan", write_study(tmp_path, protocol=protocol), "--results", tmp_path / "results", "--gpus", "1")
    printed = refused(*plan)
    assert "precision: tf32: for GPUs alone. Give trials one with --gpus-per-trial 1." in printed
    succeeds(*plan, "--gpus-per-trial", "1")


def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    printed = refused("run", "mnist-converged", "--results", tmp_path / "results", "--address", "127.0.0.1:1")
    assert "no Ray cluster answers at --address 127.0.0.1:1: [Errno 111] Connection refused. Start one with" in printed
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("no_network")
def test_weights_that_cannot_be_had(tmp_path: Path) -> None:
    study = write_study(tmp_path, models="{gpt2: {}}")
    of_study = ("data", study, "--data-dir", tmp_path)
    for command in (("data", "gpt2", "--data-dir", tmp_path), of_study, ("run", study, "--results", tmp_path / "new")):
        printed = refused(*command)
        assert "openai-community/gpt2@607a30d are not in the local Hugging Face cache" in printed
        assert "`pretrained: {folder: FOLDER}`" in printed
        assert ("digits: verified" in printed) == (command == of_study)
    write_study(tmp_path, models="{gpt2: {}}", variants=("frozen-random",))
    succeeds(*of_study)


@pytest.mark.usefixtures("no_network")
def test_data_that_cannot_be_had(tmp_path: Path) -> None:
    study = write_study(tmp_path, tasks="{mnist: {num_steps: 20}}")
    for command in (("data", "mnist"), ("data", study), ("run", study, "--results", tmp_path / "results")):
        printed = refused(*command, "--data-dir", tmp_path)
        assert f"mnist: these files are missing:\n  {tmp_path}/mnist/MNIST/raw/train-images-idx3-ubyte.gz" in printed
        assert "Name or service not known" in printed
        assert f"`lr-sweep data mnist --data-dir {tmp_path}`" in printed


def test_data_by_name(tmp_path: Path) -> None:
    assert said("data", "digits", "--data-dir", tmp_path) == (0, f"digits: verified in {tmp_path}\n")
    assert said("data", write_study(tmp_path), "--data-dir", tmp_path) == (0, f"digits: verified in {tmp_path}\n")
    printed = refused("data", "digit", "--data-dir", tmp_path)
    assert "unknown task, model or study 'digit'; did you mean 'digits'? valid: bert-base-uncased, bit-" in printed


@pytest.mark.parametrize("command", ["plan", "run", "data --pretrain"])
def test_what_trains_names_a_folder_that_is_no_results_directory(tmp_path: Path, command: str) -> None:
    printed = refused(*command.split(), write_study(tmp_path), "--results", tmp_path)
    assert f"{tmp_path} is not empty and holds no record of ours" in printed


@pytest.mark.parametrize(
    "command",
    [
        *("ls", "ls small", "status small", "report small", "show abcd", "gc", "verify"),
        "export x.csv",
    ],
)
def test_what_reads_names_a_folder_that_is_no_results_directory(tmp_path: Path, command: str) -> None:
    """It comes before an unknown study, and nothing is written there."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    for name, message in (("none", "no results directory at "), ("other", "no format.json")):
        printed = refused(*command.split(), "--results", tmp_path / name)
        assert (message in printed, str(tmp_path / name) in printed, "unknown study" in printed) == (True, True, False)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["notes.txt", "other"]


@pytest.mark.usefixtures("undrawn")
def test_a_strict_report_of_an_untuned_study(tmp_path: Path) -> None:
    record = SyntheticRecord(tmp_path, "tiny")
    record.add(1e-3, 0, [(300, 0.5, 0.5)])
    record.write()
    printed = succeeds("report", "tiny", "--results", tmp_path)
    assert "1 of 1 learning rate with values, want at least 3" in printed
    assert said("report", "tiny", "--results", tmp_path, "--strict")[0] == 1


def test_pretrain_of_a_study_that_has_no_recipe(tmp_path: Path) -> None:
    code, printed = said("data", "--pretrain", write_study(tmp_path), "--results", tmp_path / "results")
    assert (code, printed) == (0, f"tiny: nothing to pretrain here; its weights come from {tmp_path / 'weights'}\n")


def test_a_disk_that_is_too_small_is_reported_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lr_sweep.sweep.results.directory.Results.free_bytes", lambda self: 1000)
    printed = refused("run", write_study(tmp_path), "--results", tmp_path / "results")
    assert "has 0.0 MB free and the runs to train may need" in printed
