"""What makes two runs the same run, and what does not."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from lr_sweep.datasets import SHIPPED
from lr_sweep.sweep.study.backbones import find_backbones, is_unknown
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.runs import WantedRun, by_cell, wanted_runs
from lr_sweep.sweep.study.study import Study
from lr_sweep.tests.support.small_bodies import SIZES
from lr_sweep.tests.support.small_runs import random_weights, run_of
from lr_sweep.tests.support.task_files import write_release
from lr_sweep.tests.support.tiny_study import SIZE, runs_of, write_study
from lr_sweep.trainables.models.published import MODELS
from lr_sweep.trainables.parts import VARIANTS
from lr_sweep.trainables.run import PROTOCOL_VERSION, ModelSize, Protocol, Run

OTHERS: dict[str, Any] = {
    "task_options": {"split_seed": 1},
    "model": ModelSize(layers=3, heads=2, width=16, positions=12),
    "trained": ("input", "output"),
    "learning_rate": 1.0000000000000002e-2,  # the next float
    "protocol": Protocol(evaluate_every=20),
}
"""Other values of fields that `other` has none for, and the next float."""
IDS = {
    "frozen-random": "a5f087c0ff684259",
    "frozen-pretrained": "fa7738ac0a77f6a6",
    "unfrozen-random": "e8cb1e86e32b2490",
    "unfrozen-pretrained": "bf7d90e2e768711b",
}
"""The id of each variant's `run_of(learning_rate=1e-3)`."""
FAMILY_IDS = {
    "lstm": "d51f9cabd1c6641d",
    "bert": "4a49a98979f88feb",
    "t5": "30794492ea68f8b7",
    "longformer": "75b9ba4aea8a569a",
    "vit": "4e71b7fe486681a1",
}
"""The same of `unfrozen-random` and each other family's size in `small_bodies`."""


def other(value: Any) -> Any:
    """Return another value for a field."""
    if isinstance(value, bool):
        return not value
    return "another" if value is None or isinstance(value, str) else 2 * value or 1


def changed_runs() -> Iterator[tuple[str, Run]]:
    """Runs of which no two are alike: one for each field of a run, its protocol and each family's size."""
    run = run_of()
    for name, value in vars(run).items():
        yield name, dataclasses.replace(run, **{name: OTHERS[name] if name in OTHERS else other(value)})
    for name, value in vars(run.protocol).items():
        protocol = dataclasses.replace(run.protocol, **{name: other(value)})
        yield name, dataclasses.replace(run, protocol=protocol)
    for family, size in SIZES.items():
        yield family, run_of(size=size)
        for name, value in vars(size).items():
            yield f"{name} of {family}", run_of(size=dataclasses.replace(size, **{name: other(value)}))


def test_every_field_changes_the_id() -> None:
    ids: dict[str, str] = {}
    for name, run in changed_runs():
        assert run.run_id not in ids, (name, ids[run.run_id])
        ids[run.run_id] = name
    assert ids[run_of().run_id] == "gpt2"


def test_the_protocol_version_changes_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    before = run_of().run_id
    monkeypatch.setattr("lr_sweep.trainables.run.PROTOCOL_VERSION", PROTOCOL_VERSION + 1)
    assert run_of().run_id != before


def test_an_id_is_what_it_was() -> None:
    """A pinned id. If this fails, what was trained before no longer counts as the same run.

    Either undo what changed `Run.content()`, or mean it: raise PROTOCOL_VERSION if numbers changed, and pin the new id.
    """
    assert {name: run_of(name, learning_rate=1e-3).run_id for name in IDS} == IDS
    sizes = SIZES | {"lstm": dataclasses.replace(SIZES["lstm"], cell="library")}  # what came later is not in ids
    assert {name: run_of(size=sizes[name], learning_rate=1e-3).run_id for name in FAMILY_IDS} == FAMILY_IDS
    assert SIZES.keys() == {"gpt2", *FAMILY_IDS}


def test_the_order_of_parts_changes_no_id() -> None:
    run = run_of("frozen-random")
    for trained in itertools.permutations(run.trained):
        assert dataclasses.replace(run, trained=trained) == run
        assert dataclasses.replace(run, trained=trained).run_id == run.run_id


@given(
    learning_rate=st.floats(allow_nan=False, allow_infinity=False),
    seed=st.integers(),
    options=st.dictionaries(st.text(), st.integers() | st.text()),
)
def test_siblings_have_their_own_ids(learning_rate: float, seed: int, options: dict[str, Any]) -> None:
    one = dataclasses.replace(run_of(), task_options=options)
    other = dataclasses.replace(one, learning_rate=learning_rate, seed=seed)
    assert one.sibling_ids()(learning_rate, seed) == other.run_id


def test_options_in_another_order_are_the_same_run() -> None:
    one, other = (dataclasses.replace(run_of(), task_options=o) for o in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert one.run_id == other.run_id


def ids(folder: Path, **changes: Any) -> list[str]:
    return [run.run_id for run in runs_of(write_study(folder, **changes), folder / "results")]


def test_names_budgets_and_resources_are_no_part_of_a_run(tmp_path: Path) -> None:
    before = ids(tmp_path)
    assert len(set(before)) == 4
    assert ids(tmp_path, title="Another title") == before
    assert ids(tmp_path, num_steps=1000) == before
    assert ids(tmp_path, runs_per_trial=7) == before
    assert ids(tmp_path, resources="{cpus_per_trial: 2, retries: 0}") == before
    model = "{size: {layers: 1, heads: 2, width: 16, positions: 12}, pretrained: {folder: weights}}"
    assert ids(tmp_path, models=f"{{another-name: {model}}}") == before
    assert len(set(ids(tmp_path, models=f"{{one: {model}, two: {model}}}"))) == 4
    other_name = tmp_path / "other-name.yaml"
    other_name.write_text(write_study(tmp_path).read_text().replace("study: tiny", "study: other-name"))
    assert [run.run_id for run in runs_of(other_name, tmp_path / "results")] == before


def test_a_variants_name_is_no_part_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ids(tmp_path, variants=("unfrozen-random",))
    monkeypatch.setitem(VARIANTS, "from-scratch", VARIANTS["unfrozen-random"])
    assert ids(tmp_path, variants=("from-scratch",)) == before


def test_other_weights_are_other_runs_and_random_ones_do_not_care(tmp_path: Path) -> None:
    before = ids(tmp_path)
    others = {name: 2 * tensor for name, tensor in random_weights(SIZE).items()}
    save_file(others, tmp_path / "weights" / "model.safetensors")
    after = ids(tmp_path)
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, False, True, True]


def test_data_that_was_found_is_the_same_run_as_data_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # `runs_of` looks for data here

    def of(source: str) -> list[str]:
        return ids(tmp_path, tasks=f"{{listops: {{num_steps: 20, source: {source}}}}}")

    generated = of("generated")
    assert of("auto") == generated
    write_release(tmp_path / "listops")
    assert of("auto") == of("release")
    assert not set(of("auto")) & set(generated)


def test_seeds_are_outermost_and_every_run_has_its_own_id(tmp_path: Path) -> None:
    runs = runs_of(write_study(tmp_path, seeds=2), tmp_path / "results")
    order = [(run.run.seed, run.variant, run.run.learning_rate) for run in runs]
    variants, rates = ("frozen-pretrained", "unfrozen-random"), (1e-3, 1e-2)
    assert order == list(itertools.product((0, 1), variants, rates))
    assert [run.run_id for run in runs] == [run.run.run_id for run in runs]
    assert len({run.run_id for run in runs}) == 8


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[WantedRun]]:
    """Runs of the shipped tables with an empty data directory, no weights, and no way to ask for them."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked the network"))
    (tmp_path / "data").mkdir()
    studies = [load_study(name) for name in ("rothermel2021-table1", "rothermel2021-table4")]
    return {s.study: _runs(s, tmp_path) for s in studies}


def _runs(study: Study, folder: Path) -> list[WantedRun]:
    return wanted_runs(study, find_backbones(study, folder), folder / "data")


def test_shipped_tables_share_runs_whose_ids_are_final(shipped: dict[str, list[WantedRun]]) -> None:
    table_1, table_4 = ({run.run_id: run for run in runs} for runs in shipped.values())
    assert (len(table_1), len(shipped["rothermel2021-table1"])) == (432, 432)
    assert len(by_cell(shipped["rothermel2021-table1"])) == 16
    checksums = {run.run.weights_checksum for run in table_1.values()}
    assert checksums == {None, MODELS["gpt2"].sha256}  # pinned before anything is fetched
    assert not any(map(is_unknown, checksums))
    assert len(table_4) == 648  # 3 tasks x 2 models x 4 variants x 9 learning rates x 3 seeds
    gpt2 = {run_id for run_id, run in table_4.items() if run.model == "gpt2"}
    assert len(gpt2) == 324
    assert gpt2 == {run_id for run_id, run in table_1.items() if run.run.task != "listops"}
    assert table_1.keys() & table_4.keys() == gpt2


def test_the_shipped_tasks_have_the_ids_they_had(shipped: dict[str, list[WantedRun]], tmp_path: Path) -> None:
    """Pinned ids: a shipped task is identified by its `checksum` alone, whatever happens to its code."""
    others = "{bit-memory: {num_steps: 20}, bit-xor: {num_steps: 20}, remote-homology: {num_steps: 20}}"
    lu2021 = load_study(write_study(tmp_path, tasks=others, variants=("frozen-random",)))
    runs = [*shipped["rothermel2021-table1"], *_runs(load_study("quickstart"), tmp_path), *_runs(lu2021, tmp_path)]
    first: dict[str, str] = {}
    for run in runs:
        if run.variant == "frozen-random":
            first.setdefault(run.run.task, run.run_id)
    assert first == {
        "listops": "05d251ed16335be5",
        "mnist": "f828919c1696de93",
        "cifar10": "b3f998573b533f5c",
        "cifar10-lra": "3bdc0e3ddc4c37ad",
        "digits": "f06ce9b1af770c2b",
        "bit-memory": "7d36049efb52faac",
        "bit-xor": "2e315feb84ce33fb",
        "remote-homology": "c78a2c373a09e899",
    }
    assert first.keys() == SHIPPED.keys()


def test_studies_with_shipped_weights_have_the_same_ids_on_every_machine(tmp_path: Path) -> None:
    runs = {run.variant: run for run in _runs(load_study("quickstart"), tmp_path) if run.run.seed == 0}
    ids = {name: run.run_id for name, run in runs.items()}  # of each variant's last learning rate
    assert ids == {
        "frozen-random": "4e67dc833168cf6f",
        "frozen-pretrained": "bf7e9e84c459294a",
        "unfrozen-random": "57935133dca04cbe",
        "unfrozen-pretrained": "91c75eea9bddf8dd",
    }
    for study in ("mnist-converged", "cifar10-converged", "listops-short"):
        checksums = {run.run.weights_checksum for run in _runs(load_study(study), tmp_path)}
        assert checksums == {None, "1eade0b59caab4807f84ff4cba3bd9deee9cc3c2bfe462570477bd89e6dd9b5b"}
