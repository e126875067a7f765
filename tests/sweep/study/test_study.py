"""What a study says: models, paths, learning rates, the shipped studies, and the round trip through YAML."""

from __future__ import annotations

import contextlib
import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.common.errors import UserError
from lr_sweep.datasets import TASKS
from lr_sweep.sweep.study.file import load_study, shipped_studies, study_of, study_to_yaml
from lr_sweep.sweep.study.model import FolderWeights, PretrainedHere
from lr_sweep.sweep.study.search import LearningRateGrid
from lr_sweep.sweep.study.study import StudyTask
from lr_sweep.tests.support.study_example import GRID, STUDY, write
from lr_sweep.trainables.pretraining.recipe import PretrainRecipe
from lr_sweep.trainables.run import ModelSize, Protocol

OWN = "{initialisation: random, trained: [output], protocol: {optimizer: sgd, weight_decay: 0.5}}"
SPACE = "{batch_size: [4, 8], dropout: {low: 0, high: 0.3}}"


def test_a_right_file_says_what_it_says(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, STUDY))
    assert (study.study, study.title) == ("example", "An example")
    assert study.tasks == {"digits": StudyTask(num_steps=2000, options=TASKS["digits"].Options())}
    assert study.models["tiny"].size == ModelSize(layers=2, heads=4, width=64, positions=1024)
    assert study.models["tiny"].pretrained == PretrainedHere(pretrain=PretrainRecipe())
    assert study.learning_rate_grid() == (1e-4, 1e-3, 1e-2)
    assert study.seed_list() == (0, 1, 2)
    assert study.protocol == Protocol(evaluate_every=1000)
    assert (study.resources.retries, study.resources.gpus_per_trial) == (1, 0)


def test_a_study_without_a_name_is_called_as_its_file(tmp_path: Path) -> None:
    text = STUDY.replace("study: example\n", "")
    named = load_study(write(tmp_path, STUDY))
    assert load_study(write(tmp_path, text)) == named
    (tmp_path / "cnn.yaml").write_text(text)
    assert load_study(tmp_path / "cnn.yaml") == named.model_copy(update={"study": "cnn"})
    for name in ("my_study", "Study.v2", "_x-1.5"):
        (tmp_path / f"{name}.yaml").write_text(text)
        assert load_study(tmp_path / f"{name}.yaml").study == name
    (tmp_path / "My study.yaml").write_text(text)
    with pytest.raises(UserError, match='1: study: the study is called as its file, "My study"; rename the file: want'):
        load_study(tmp_path / "My study.yaml")
    with pytest.raises(UserError, match="study: missing"):  # a mapping has no file
        study_of({"variants": ["frozen-random"]}, tmp_path)


def test_a_file_that_is_not_there_names_the_closest_one(tmp_path: Path) -> None:
    write(tmp_path, STUDY)
    with pytest.raises(
        UserError, match=r"exmple.yaml: No such file or directory; did you mean 'example.yaml'\? shipped"
    ):
        load_study(tmp_path / "exmple.yaml")
    with contextlib.chdir(tmp_path), pytest.raises(UserError, match=r"'example'; did you mean 'example.yaml'\?"):
        load_study("example")
    with pytest.raises(UserError, match="No such file or directory; shipped"):  # alike in nothing but the ending
        load_study(tmp_path / "m.yaml")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("title: An example\n", ""),  # it is called by its name
        ("digits: {num_steps: 2000}", "digits:\nnum_steps: 2000"),  # for all tasks that have none of their own
        ("seeds: 3", "seeds: [1, 0, 2]\npaired: false"),  # of an earlier version
        ("evaluate_every: 1000", "evaluate_every: 1000, gradient_clip_norm: null, dropout: 0"),
        ("[frozen-random, frozen-pretrained]", "{norms: {initialisation: statistics, trained: [output, layer_norms]}}"),
        ("[frozen-random, frozen-pretrained]", f"{{mine: {OWN}, frozen-random: {{}}}}"),
        (GRID, f"search: {{low: 1e-5, high: 1e-1, rates: 6, space: {SPACE}}}"),
        ("{pretrain: {}}", "{hub: owner/name, revision: 0123abc}"),
        ("{pretrain: {}}", "{folder: .}"),
        ("{}", "{text: [example.yaml], learning_rate: 0.5}"),
        ("{}", "{text: [DATA/text/books.txt]}"),  # in the data directory, wherever that is
        ("{}", "{task: bit-xor, num_steps: 7, num_bits: 64}"),
        ("seeds: 3", "seeds: 3\nrefine: 3\nwinners: 1\nstop_early: {rule: median, first: null}"),
        ("seeds: 3", "seeds: 3\nstop_early: median"),
        ("seeds: 3", "seeds: 3\nfresh: 5\ndecide: null"),  # the second of an earlier version
        ("seeds: 3", "seeds: 3\nfresh: {max: 20}\nequal_within: 1.0"),
        ("seeds: 3", "seeds: 3\ntags: [baseline]\nnotes: |\n  Two\n  lines"),
    ],
)
def test_it_is_written_with_all_defaults_and_read_again(tmp_path: Path, old: str, new: str) -> None:
    study = load_study(write(tmp_path, STUDY.replace(old, new)))
    again = load_study(write(tmp_path, study_to_yaml(study)))
    assert again.plain() == study.plain()
    assert again.title in ("example", "An example")
    assert again.tasks["digits"].num_steps == 2000


def test_paths_start_from_the_study_file(tmp_path: Path) -> None:
    write(tmp_path, "words", "words.txt")
    (tmp_path / "weights").mkdir()
    text = STUDY.replace("{pretrain: {}}", "{pretrain: {text: [words.txt]}}")
    (source,) = [model.pretrained for model in load_study(write(tmp_path, text)).models.values()]
    assert isinstance(source, PretrainedHere)
    assert source.pretrain.text == ((tmp_path / "words.txt").resolve(),)
    text = STUDY.replace("{pretrain: {}}", "{folder: weights}")
    assert load_study(write(tmp_path, text)).models["tiny"].pretrained == FolderWeights(folder=tmp_path / "weights")


# --- learning rates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "per_decade", "values"),
    [
        (1e-6, 1e-2, 2, (1e-6, 3.16e-6, 1e-5, 3.16e-5, 1e-4, 3.16e-4, 0.001, 3.16e-3, 1e-2)),
        (3.16e-6, 1e-4, 2, (3.16e-6, 1e-5, 3.16e-5, 1e-4)),  # a rounded end does not shift the others
        (1e-4, 1e-3, 3, (1e-4, 2.15e-4, 4.64e-4, 1e-3)),
    ],
)
def test_grids_worked_out_by_hand(low: float, high: float, per_decade: int, values: tuple[float, ...]) -> None:
    assert LearningRateGrid(low=low, high=high, per_decade=per_decade).values() == values


@given(per_decade=st.integers(1, 100), data=st.data())
def test_grids_are_even_rounded_and_share_values_with_their_parts(per_decade: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(-9 * per_decade, 0))  # in grid steps from 1
    num_steps = data.draw(st.integers(0, min(-first, 60)))
    low, high = (float(f"{10 ** (step / per_decade):.3g}") for step in (first, first + num_steps))
    values = LearningRateGrid(low=low, high=high, per_decade=per_decade).values()
    assert len(values) == num_steps + 1
    assert (values[0], values[-1]) == (low, high)
    assert all(value == float(f"{value:.3g}") for value in values)
    for value, following in itertools.pairwise(values):
        assert math.isclose(math.log10(following / value), 1 / per_decade, abs_tol=0.005)
    if num_steps:
        assert LearningRateGrid(low=values[1], high=high, per_decade=per_decade).values() == values[1:]


@pytest.mark.parametrize(
    ("text", "rates"),
    [*((text, (0.001,)) for text in ("1e-3", "0.001", "1.0e-03", "1E-3")), ("1e-3, 1, 2e-4", (2e-4, 1e-3, 1.0))],
)
def test_a_list_of_learning_rates_comes_sorted_whatever_its_spelling(
    tmp_path: Path, text: str, rates: tuple[float, ...]
) -> None:
    study = load_study(write(tmp_path, STUDY.replace(GRID, f"learning_rates: [{text}]")))
    assert study.learning_rate_grid() == rates


# --- shipped studies and the round trip ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", shipped_studies())
def test_shipped_studies_load_and_round_trip(name: str, tmp_path: Path) -> None:
    study = load_study(name)
    assert load_study(write(tmp_path, study_to_yaml(study), f"{name}.yaml")).plain() == study.plain()


def test_tables_1_and_4_have_the_paper_s_budgets() -> None:
    """Which runs they are, and that they share those of GPT-2: `test_run_identity.py`."""
    table_1, table_4 = load_study("rothermel2021-table1"), load_study("rothermel2021-table4")
    budgets = {name: task.num_steps for name, task in table_1.tasks.items()}
    assert budgets == {"listops": 300_000, "mnist": 400_000, "cifar10": 400_000, "cifar10-lra": 300_000}
    assert table_4.tasks == {name: task for name, task in table_1.tasks.items() if name != "listops"}
    assert table_1.protocol == table_4.protocol == Protocol()
