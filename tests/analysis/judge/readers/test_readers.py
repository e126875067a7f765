"""What other libraries wrote, read as it is: Optuna, MLflow, TensorBoard, Lightning, Hydra, Ray Tune; W&B's exports."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.study_files import Study
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.judged import chosen, judge, run_script

RATES = (1e-3, 1e-2, 1e-1)
BEST = {"a": 1e-2, "b": 1e-1}
RUNS = list(product("ab", RATES, (0, 1)))


def accuracy(variant: str, rate: float, seed: int) -> float:
    """Worked out by hand: 0.75 and 0.875 at the best rate, with a seed's eighth of 0.25."""
    return 0.5 + (0.25 if rate == BEST[variant] else 0.0) + 0.125 * (variant == "b") - 0.0625 * seed


def assert_found(study: Study, reader: str = "", steps: bool = False) -> None:
    """Each variant is best at its rate, at 0.71875 and 0.84375."""
    assert chosen(study) == {"a": (1e-2, 0.71875), "b": (1e-1, 0.84375)}
    assert study.summary.runs.groupby("variant")["seed"].nunique().tolist() == [2, 2]
    assert any(reader in line for line in study.about_table), study.about_table
    assert not steps or set(study.summary.runs["best_step"]) == {2}


def trial(
    value: float | None, state: str = "COMPLETE", reports: dict[int, float] | None = None, **params: float | str
) -> Any:
    """Return a trial of Optuna."""
    optuna = pytest.importorskip("optuna")
    kinds = {
        "variant": optuna.distributions.CategoricalDistribution(["a", "b"]),
        "lr": optuna.distributions.FloatDistribution(0, 1),
        "seed": optuna.distributions.IntDistribution(0, 1),
    }
    return optuna.trial.create_trial(
        params=params,
        distributions={name: kinds[name] for name in params},
        state=optuna.trial.TrialState[state],
        value=value,
        intermediate_values=reports or {},
    )


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_a_study_of_optuna(tmp_path: Path, kind: str) -> None:
    optuna = pytest.importorskip("optuna")
    path = tmp_path / "study"
    backend = optuna.storages.journal.JournalFileBackend(str(path)) if kind == "journal" else None
    storage = optuna.storages.JournalStorage(backend) if backend else f"sqlite:///{path}"
    study = optuna.create_study(storage=storage, direction="maximize", study_name="mine")
    study.add_trials([trial(accuracy(*run), variant=run[0], lr=run[1], seed=run[2]) for run in RUNS])
    found = judge([path], Reading())
    assert_found(found, "a study of Optuna")
    assert found.info.metric.higher_is_better


def test_pruned_and_failed_trials_of_optuna(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study(storage=f"sqlite:///{tmp_path}/s.db", study_name="s")
    study.add_trial(trial(0.5, reports={1: 0.5}, lr=0.1))
    study.add_trial(trial(None, "PRUNED", {1: 0.1}, lr=0.2))
    study.add_trial(trial(None, "FAIL", lr=0.3))
    found = judge([tmp_path / "s.db"], Reading())
    assert found.summary.runs["status"].tolist() == ["complete", "stopped", "failed"]
    assert chosen(found) == {"all": (0.1, 0.5)}


MLFLOW = """
import sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("sweep")
for variant, rate, seed, value in eval(sys.argv[2]):
    with mlflow.start_run():
        mlflow.log_params({"variant": variant, "lr": rate, "seed": seed})
        mlflow.log_metrics({"val_acc": value, "val_loss": 1 - value})
mlflow.search_runs(experiment_names=["sweep"]).to_csv("../table.csv")
"""


@pytest.mark.slow
def test_a_database_of_mlflow_and_its_table_of_runs(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    run_script(MLFLOW, f"sqlite:///{store}/mlflow.db", repr([(*run, accuracy(*run)) for run in RUNS]), folder=store)
    assert_found(judge([store / "mlflow.db"], Reading()), "runs of MLflow")
    assert_found(judge([store], Reading()), "runs of MLflow")
    table = judge([tmp_path / "table.csv"], Reading(metric="accuracy"))
    assert_found(table)
    assert set(table.summary.runs["status"]) == {"complete"}


LAST_VALUES = """
import math, sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
for rate, curve in eval(sys.argv[2]).items():
    with mlflow.start_run():
        mlflow.log_params({"lr": rate, "seed": 0})
        for step, value in enumerate(curve):
            mlflow.log_metric("val_loss", value, step=step)
"""


@pytest.mark.slow
def test_the_last_values_of_mlflow_are_said_to_be_that(tmp_path: Path) -> None:
    curves = {"0.1": "[0.2, 0.9]", "0.01": "[0.5]", "0.001": "[0.6, 0.7]", "1": "[0.1, math.nan]"}
    text = "{" + ", ".join(f"'{rate}': {curve}" for rate, curve in curves.items()) + "}"
    run_script(LAST_VALUES, f"sqlite:///{tmp_path}/mlflow.db", text, folder=tmp_path)
    found = judge([tmp_path / "mlflow.db"], Reading())
    rates = found.summary.learning_rates.set_index("learning_rate")["validation_mean"]
    assert rates.dropna().to_dict() == {0.001: 0.7, 0.01: 0.5, 0.1: 0.9}
    assert found.summary.runs.set_index("learning_rate")["status"][1.0] == "diverged"
    assert any("runs of MLflow, the last value of each metric" in line for line in found.about_table)


@pytest.mark.parametrize("library", ["tensorboardX", "torch.utils.tensorboard"])
@pytest.mark.parametrize("named", ["folder", "hyperparameters"])
def test_events_of_tensorboard(tmp_path: Path, library: str, named: str) -> None:
    pytest.importorskip("tensorboard" if library.startswith("torch") else library)
    writer_of = pytest.importorskip(library).SummaryWriter
    for number, (variant, rate, seed) in enumerate(RUNS):
        name = f"{variant}_lr={rate},seed={seed}" if named == "folder" else f"run{number}"
        with writer_of(str(tmp_path / name)) as writer:
            for step in (1, 2, 3):
                writer.add_scalar("train/loss", 1 / step, step)
                writer.add_scalar("val/acc", accuracy(variant, rate, seed) - 0.01 * abs(step - 2), step)
                writer.add_scalar("lr", rate / step, step)
            if named == "hyperparameters":
                writer.add_hparams({"method": variant, "lr": rate, "seed": seed}, {"final": 1.0})
    found = judge([tmp_path], Reading())
    cells = found.summary.cells.set_index("variant")
    assert cells["learning_rate"].to_dict() == BEST
    assert cells["validation_mean"].tolist() == pytest.approx([0.71875, 0.84375])
    assert set(found.summary.runs["best_step"]) == {2}


def test_an_event_file_that_was_cut_has_its_first_records(tmp_path: Path) -> None:
    writer_of = pytest.importorskip("tensorboardX").SummaryWriter
    for rate in RATES:
        with writer_of(str(tmp_path / f"lr={rate}")) as writer:
            for step in (1, 2, 3):
                writer.add_scalar("val/acc", rate + step, step)
    (path,) = (tmp_path / "lr=0.1").iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    found = judge([tmp_path], Reading())
    assert found.summary.runs["best_step"].tolist() == [3, 3, 2]


def test_folders_of_lightning_s_logger(tmp_path: Path) -> None:
    loggers = pytest.importorskip("pytorch_lightning.loggers")
    for variant, rate, seed in RUNS:
        logger = loggers.CSVLogger(str(tmp_path), name="mine")
        logger.log_hyperparams({"method": variant, "lr": rate, "seed": seed, "net": {"width": 8}})
        for step in (1, 2, 3):
            logger.log_metrics({"train_loss_step": 1 / step, "lr-Adam": rate / step}, step=step)
            logger.log_metrics({"val_acc": accuracy(variant, rate, seed) - 0.125 * abs(step - 2)}, step=step)
        logger.save()
    assert_found(judge([tmp_path], Reading()), "Lightning's CSVLogger", steps=True)


HYDRA = """
import json, hydra
from pathlib import Path
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from hydra.core.config_store import ConfigStore

ConfigStore.instance().store(name="main", node={"optimizer": {"name": "a", "lr": 1e-3}, "seed": 0, "depth": 2})

@hydra.main(version_base="1.3", config_path=None, config_name="main")
def main(config):
    best = {"a": 1e-2, "b": 1e-1}[config.optimizer.name]
    value = 0.5 + 0.25 * (config.optimizer.lr == best) + 0.125 * (config.optimizer.name == "b") - 0.0625 * config.seed
    folder = Path(HydraConfig.get().runtime.output_dir)
    (folder / "result.json").write_text(json.dumps({"val_acc": value}))

main()
"""


def test_jobs_of_hydra(tmp_path: Path) -> None:
    pytest.importorskip("hydra")
    (tmp_path / "main.py").write_text(HYDRA)
    swept = ["optimizer.name=a,b", "optimizer.lr=1e-3,1e-2,1e-1", "seed=0,1"]
    command = [sys.executable, "main.py", "-m", *swept]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert_found(judge([tmp_path / "multirun"], Reading(columns={"variant": "config.optimizer.name"})), "jobs of Hydra")
    assert_found(judge([tmp_path / "multirun"], Reading()), "jobs of Hydra")


RAY = """
import sys, pandas, ray
from ray import tune
ray.init(address="local", num_cpus=2)
def train(config):
    best = {"a": 1e-2, "b": 1e-1}[config["method"]]
    for step in (1, 2, 3):
        value = 0.5 + 0.25 * (config["lr"] == best) + 0.125 * (config["method"] == "b") - 0.0625 * config["seed"]
        tune.report({"val_acc": value - 0.125 * abs(step - 2)})
grid = tune.grid_search
space = {"method": grid(["a", "b"]), "lr": grid([1e-3, 1e-2, 1e-1]), "seed": grid([0, 1])}
run_config = tune.RunConfig(storage_path=sys.argv[1], name="mine", verbose=0)
results = tune.Tuner(train, param_space=space, run_config=run_config).fit()
results.get_dataframe().to_csv("last.csv")
pandas.concat(
    result.metrics_dataframe.assign(**{f"config/{name}": value for name, value in result.config.items()})
    for result in results
).to_csv("steps.csv")
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_folders_and_tables_of_ray_tune(tmp_path: Path) -> None:
    run_script(RAY, str(tmp_path), folder=tmp_path)
    assert_found(judge([tmp_path / "mine"], Reading()), "folders of Ray Tune", steps=True)
    assert_found(judge([tmp_path / "steps.csv"], Reading()), steps=True)
    assert chosen(judge([tmp_path / "last.csv"], Reading())) == {"a": (1e-2, 0.59375), "b": (1e-1, 0.71875)}


def test_a_trial_of_ray_tune_that_failed(tmp_path: Path) -> None:
    """As Ray lays out its folders; see the test above for what it wrote itself."""
    for rate in RATES:
        trial = tmp_path / f"train_{rate}"
        trial.mkdir()
        (trial / "params.json").write_text(json.dumps({"lr": rate, "opt": {"momentum": 0.9}}))
        values = [math.nan] if rate == 1e-1 else [rate, 2 * rate]
        reports = [{"val_loss": v, "training_iteration": i, "config": {"lr": 5}} for i, v in enumerate(values, 1)]
        (trial / "result.json").write_text("".join(json.dumps(report) + "\n" for report in reports))
    (tmp_path / "train_0.001" / "error.txt").write_text("it broke")
    found = judge([tmp_path], Reading())
    assert found.summary.runs.sort_values("learning_rate")["status"].tolist() == ["failed", "complete", "diverged"]
    assert chosen(found) == {"all": (1e-2, 1e-2)}


def test_a_chart_of_wandb(tmp_path: Path) -> None:
    names = {f"{variant}, lr: {rate}, seed: {seed} - val/acc": (variant, rate, seed) for variant, rate, seed in RUNS}
    head = ["Step", *(f'"{name}{end}"' for name in names for end in ("", "__MIN", "__MAX"))]
    lines = [",".join(head)]
    for step in (1, 2, 3):
        values = [accuracy(*run) - 0.125 * abs(step - 2) for run in names.values()]
        lines.append(",".join([str(step), *(str(value) for each in values for value in (each, 0, 1))]))
    (tmp_path / "chart.csv").write_text("\n".join(lines) + "\n")
    assert_found(judge([tmp_path / "chart.csv"], Reading()), "a chart of W&B", steps=True)
    (tmp_path / "chart.csv").write_text("Step,wild-fog-1 - val/acc\n1,0.5\n")
    with pytest.raises(UserError, match="'wild-fog-1' has no learning rate: export the table of runs"):
        judge([tmp_path / "chart.csv"], Reading())


ROWS = [
    {"method": variant, "lr": rate, "seed": seed, "val_acc": accuracy(variant, rate, seed)}
    for variant, rate, seed in RUNS
]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(map(json.dumps, ROWS)),
        json.dumps(ROWS),
        json.dumps([{"config": row, "summary": {"val_acc": row.pop("val_acc")}} for row in map(dict, ROWS)]),
        json.dumps({"columns": list(ROWS[0]), "data": [list(row.values()) for row in ROWS]}),
        json.dumps({name: [row[name] for row in ROWS] for name in ROWS[0]}),
        json.dumps({name: {str(i): row[name] for i, row in enumerate(ROWS)} for name in ROWS[0]}),
    ],
    ids=["lines", "rows", "nested", "W&B's table", "columns", "columns of pandas"],
)
def test_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "runs.json").write_text(text)
    assert_found(judge([tmp_path / "runs.json"], Reading()), "JSON")


def test_ends_of_lines_in_texts_of_json_end_no_line(tmp_path: Path) -> None:
    lines = [json.dumps(row | {"note": "a\u2028b\x85c"}, ensure_ascii=False) for row in ROWS]
    (tmp_path / "runs.jsonl").write_text("\r\n".join(lines), newline="")
    assert_found(judge([tmp_path / "runs.jsonl"], Reading()), "JSON lines")


def test_wrong_lines_of_json_are_named(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text('{"lr": 0.1, "val_acc": 0.5}\n{"lr": 0.2, "val_')
    with pytest.raises(UserError, match="runs.jsonl:2: no JSON"):
        judge([tmp_path / "runs.jsonl"], Reading())


def test_files_by_a_pattern(tmp_path: Path) -> None:
    for variant in "ab":
        rows = [f"{rate},{seed},{accuracy(variant, rate, seed)}" for name, rate, seed in RUNS if name == variant]
        (tmp_path / f"{variant}.csv").write_text("\n".join(["lr,seed,val_acc", *rows, ""]))
    assert judge([str(tmp_path / "*.csv")], Reading()).summary.cells["task"].tolist() == ["a", "b"]
    (tmp_path / "runs").mkdir()
    for variant, rate, seed in RUNS:  # one run a file, with its settings in the name alone
        steps = [f"{step},{accuracy(variant, rate, seed) - 0.125 * abs(step - 2)}" for step in (1, 2, 3)]
        (tmp_path / "runs" / f"{variant}-lr{rate}-s{seed}.csv").write_text("\n".join(["step,val_acc", *steps, ""]))
    assert_found(judge([str(tmp_path / "runs" / "*.csv")], Reading()), "12 files with one learning rate", steps=True)
    with pytest.raises(UserError, match="no file fits .*.tsv: name a table"):
        judge([str(tmp_path / "*.tsv")], Reading())


@pytest.mark.parametrize("library", ["optuna", "mlflow", "tensorboardX"])
def test_a_library_that_is_not_there_is_named(tmp_path: Path, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source: Path | str = "http://127.0.0.1:1"
    if library == "optuna":
        source = tmp_path / "journal.log"
        source.write_text('{"op_code": 0, "worker_id": "x", "study_name": "s", "directions": [1]}\n')
    if library == "tensorboardX":
        source = tmp_path / "events.out.tfevents.1"
        source.write_bytes(b"\0" * 20)
        monkeypatch.setitem(sys.modules, "tensorboardX.proto.event_pb2", None)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match=f"`pip install {library}`"):
        judge([source], Reading())


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0" + b"\1" * 200)
    (tmp_path / "folder").mkdir()
    for source, message in (("broken.db", "as a database"), ("folder", "none of Ray Tune, Hydra")):
        with pytest.raises(UserError, match=message):
            judge([tmp_path / source], Reading())


def test_several_studies_are_variants_and_several_objectives_are_refused(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    storage = f"sqlite:///{tmp_path}/s.db"
    for variant in "ab":
        study = optuna.create_study(storage=storage, study_name=variant, direction="maximize")
        study.add_trials([trial(accuracy(variant, rate, seed), lr=rate, seed=seed) for _, rate, seed in RUNS[:6]])
    assert_found(judge([tmp_path / "s.db"], Reading()), "2 studies of Optuna")
    optuna.create_study(storage=storage, study_name="two", directions=["maximize", "minimize"])
    with pytest.raises(UserError, match="the study two has several objectives"):
        judge([tmp_path / "s.db"], Reading())
