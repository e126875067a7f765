"""Folders of runs as Ray Tune, Hydra, Lightning and others write them, and of any files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.tables import texts_of

READINGS = Path(__file__).parents[1] / "readings"


def read(folder: Path) -> TableFile:
    (table,) = read_sources([folder])
    return table


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_folders_of_lightning(tmp_path: Path) -> None:
    """Written by Lightning 2.6."""
    loggers = pytest.importorskip("pytorch_lightning.loggers")
    for rate in (0.1, 0.2):
        logger = loggers.CSVLogger(str(tmp_path), name="mine")
        logger.log_hyperparams({"lr": rate, "net": {"width": 8}})
        logger.log_metrics({"val_acc": rate / 2}, step=1)
        logger.save()
    columns = texts_of(read(tmp_path))
    assert columns["run"] == ["mine/version_0", "mine/version_1"]
    assert (columns["config.lr"], columns["config.net.width"]) == (["0.1", "0.2"], ["8", "8"])
    assert columns["val_acc"] == ["0.05", "0.1"]


HYDRA = """
import json, hydra
from pathlib import Path
from hydra.core.hydra_config import HydraConfig
from hydra.core.config_store import ConfigStore

ConfigStore.instance().store(name="main", node={"optimizer": {"lr": 1e-3}, "seed": 0})

@hydra.main(version_base="1.3", config_path=None, config_name="main")
def main(config):
    folder = Path(HydraConfig.get().runtime.output_dir)
    if config.seed == 0:
        (folder / "result.json").write_text(json.dumps({"val_acc": config.optimizer.lr / 2}))

main()
"""


def test_jobs_of_hydra_of_which_some_wrote_nothing(tmp_path: Path) -> None:
    """Written by Hydra 1.3."""
    pytest.importorskip("hydra")
    write(tmp_path, {"main.py": HYDRA})
    command = [sys.executable, "main.py", "-m", "optimizer.lr=0.1,0.2", "seed=0,1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    table = read(tmp_path / "multirun")
    runs = zip(*(texts_of(table)[name] for name in ("config.optimizer.lr", "config.seed", "val_acc")), strict=True)
    assert sorted(runs) == [("0.1", "0", "0.05"), ("0.1", "1", ""), ("0.2", "0", "0.1"), ("0.2", "1", "")]


RAY = """
import sys, ray
from ray import tune
ray.init(address="local", num_cpus=1)
def train(config):
    tune.report({"val_acc": config["lr"] / 2})
    if config["lr"] > 0.1:
        raise ValueError("it broke")
space = {"lr": tune.grid_search([0.1, 0.2])}
run_config = tune.RunConfig(storage_path=sys.argv[1], name="mine", verbose=0)
tune.Tuner(train, param_space=space, run_config=run_config).fit()
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_folders_of_ray_tune(tmp_path: Path) -> None:
    """Written by Ray 2.60."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", RAY, str(tmp_path)], env=environment, check=True, capture_output=True)
    table = read(tmp_path / "mine")
    columns = [texts_of(table)[name] for name in ("config.lr", "val_acc", "state")]
    assert columns == [["0.1", "0.2"], ["0.05", "0.1"], ["", "ERROR"]]
    assert table.known == {"run": "run"}


def test_a_trial_without_a_report_is_a_run_without_values(tmp_path: Path) -> None:
    write(tmp_path, {"a/params.json": '{"lr": 0.1}', "a/result.json": '{"val_acc": 1}\n'})
    write(tmp_path, {"b/params.json": '{"lr": 0.2}', "b/result.json": "", "b/error.txt": "it broke"})
    columns = texts_of(read(tmp_path))
    assert (columns["val_acc"], columns["state"]) == (["1", ""], ["", "ERROR"])


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["adam-lr0.1_s0", "a/x"], {}),
        (["lr=0.1,seed=1", "lr=0.2,seed=1"], {"config.lr": ["0.1", "0.2"], "config.seed": ["1", "1"]}),
    ],
)
def test_what_paths_say(tmp_path: Path, names: list[str], columns: dict[str, list[str]]) -> None:
    found = texts_of(read(write(tmp_path, {f"{name}.csv": "acc\n1\n" for name in names})))
    assert found == {**columns, "file": sorted(names), "acc": ["1", "1"]}


def test_several_kinds_of_results_are_refused_with_a_pattern_that_works(tmp_path: Path) -> None:
    files = {f"{run}/{name}.json": '{"acc": 1}' for run in "ab" for name in ("last", "time")}
    with pytest.raises(UserError, match=r"several kinds of results, last.json, time.json: .* such as") as error:
        read(write(tmp_path, files))
    pattern = str(error.value).split("'")[1]
    assert [texts_of(table)["file"] for table in read_sources([pattern])] == [["a/last"], ["b/last"]]


def test_the_name_that_most_folders_share_is_read_and_the_rest_counted(tmp_path: Path) -> None:
    """Below the comment that Stable-Baselines3 2 writes."""
    files = {f"{run}/monitor.csv": '#{"t_start": 1.5, "env_id": "CartPole-v1"}\nr,l,t\n9.0,9,0.1\n' for run in "abc"}
    table = read(write(tmp_path, files | {"c/other.csv": "acc\n0\n", ".git/x.csv": ""}))
    assert texts_of(table)["file"] == ["a/monitor", "b/monitor", "c/monitor"]
    assert texts_of(table)["r"] == ["9.0"] * 3
    assert table.reader == "monitor.csv, 3 of 4 files"


def test_a_link_in_a_folder_is_not_followed_but_named(tmp_path: Path) -> None:
    """Links to a table, to settings, and to a folder of logs."""
    outside = write(tmp_path / "outside", {"a.csv": "acc\n1\n", "logs/b.csv": "acc\n2\n", "config.yaml": "lr: 1\n"})
    runs = write(tmp_path / "runs", {"own.csv": "acc\n3\n"})
    for name in ("a.csv", "logs", "config.yaml"):
        (runs / name).symlink_to(outside / name)
    table = read(runs)
    assert texts_of(table) == {"file": ["own"], "acc": ["3"]}
    assert f"NOT READ: {runs / 'a.csv'} (a link)" in table.remarks


def test_a_store_of_mlflow_is_read_without_its_links(tmp_path: Path) -> None:
    """As MLflow 2 wrote it: a metric's last line counts, and a run that was deleted does not."""
    shutil.copytree(READINGS / "mlruns", tmp_path / "mlruns")
    table = read(tmp_path / "mlruns")
    assert set(texts_of(table)["experiment"]) == {"sweep"}
    assert set(texts_of(table)["status"]) == {"FINISHED"}
    first, second = sorted((tmp_path / "mlruns").rglob("metrics"))[:2]
    first.rename(tmp_path / "elsewhere")
    first.symlink_to(tmp_path / "elsewhere")
    about = second.with_name("meta.yaml")
    about.write_text(about.read_text().replace("stage: active", "stage: deleted"))
    values = texts_of(read(tmp_path / "mlruns"))["metrics.val_acc"]
    assert (len(values), values.count("")) == (11, 1)


def test_a_folder_of_wandb_has_its_settings_and_last_values(tmp_path: Path) -> None:
    """As W&B 0.31 lays a run out; its own binary log is refused with a way out."""
    for name, rate in (("run-1-a", 0.1), ("run-2-b", 0.2)):
        config = f"_wandb:\n  value: {{}}\nlr:\n  desc: null\n  value: {rate}\nnet:\n  value:\n    width: 8\n"
        summary = f'{{"val_acc": {rate / 2}, "_step": 9, "_runtime": 1.5}}'
        write(tmp_path / name / "files", {"config.yaml": config, "wandb-summary.json": summary})
    table = read(tmp_path)
    columns = {name: texts_of(table)[name] for name in ("config.lr", "config.net.width", "val_acc")}
    assert columns == {"config.lr": ["0.1", "0.2"], "config.net.width": ["8", "8"], "val_acc": ["0.05", "0.1"]}
    assert table.known == {"run": "run"}


METRICS = {"metrics.csv": "step,val_acc\n1,0.5\n"}
DAMAGED: dict[str, tuple[dict[str, str], str]] = {
    "a date": (METRICS | {"hparams.yaml": "day: 2001-13-45"}, "hparams.yaml cannot be read"),
    "deep settings": (METRICS | {"hparams.yaml": "x: " + "[" * 1000}, "hparams.yaml cannot be read"),
    "settings that are cut": (METRICS | {"hparams.yaml": "x: ["}, "hparams.yaml cannot be read"),
    "a trial": ({"params.json": "{}", "result.json": '{"a": ' + "[" * 100_000}, "result.json cannot be read"),
    "no trial": ({"trial.json": "[]"}, "trial.json cannot be read"),
    "no results": ({"notes.md": "mine"}, "has no results: name a table"),
}


@pytest.mark.parametrize(("files", "message"), DAMAGED.values(), ids=DAMAGED)
def test_what_cannot_be_read_is_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(write(tmp_path, files))
