"""The ListOps task: options, release files, tokenisations and the cache of generated examples."""

import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from lr_sweep.datasets import files, listops
from lr_sweep.datasets.listops_examples import VOCABULARY, Examples, to_lu2021
from lr_sweep.datasets.task import DataError
from lr_sweep.tests.support.task_files import in_four_processes, write_release


def small(**changes: object) -> listops.Options:
    sizes: dict = {"num_train": 60, "num_validation": 20, "num_test": 30, "min_tree_length": 5, "max_tree_length": 40}
    return listops.Options(**sizes | changes)


@pytest.fixture(autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home


def generated_file(data_dir: Path) -> Path:
    [path] = (data_dir / "listops").glob("generated-*.npz")
    return path


@pytest.mark.parametrize("folder", ["listops", "listops/listops-1000"])  # the second is how it unpacks
def test_release_by_hand(tmp_path: Path, folder: str) -> None:
    write_release(tmp_path / folder)
    data = listops.load(listops.Options(), tmp_path)
    assert listops.origin(listops.Options(), tmp_path) == "release"
    assert data.train.inputs.shape == (2, 2000)
    # Ids: padding 0, digit d is d + 1, [MIN 11, [MAX 12, [MED 13, [SM 14, ] 15.
    assert data.train.inputs[0, :5].tolist() == [12, 3, 10, 15, 0]
    assert data.train.inputs[1, :8].tolist() == [14, 2, 11, 6, 5, 15, 15, 0]
    assert data.train.inputs[1, 8:].max() == 0
    assert data.train.lengths is not None
    assert data.train.lengths.tolist() == [4, 7]
    assert [split.labels.tolist() for split in (data.train, data.validation, data.test)] == [[9, 5], [2], [3]]
    assert data.tokens(data.train.inputs).dtype == torch.int64


def test_release_checksum_is_of_the_content(tmp_path: Path) -> None:
    write_release(tmp_path / "a" / "listops")
    write_release(tmp_path / "b" / "listops")
    first, second = (listops.checksum(listops.Options(), tmp_path / name) for name in "ab")
    assert first == second
    with (tmp_path / "b/listops/basic_val.tsv").open("a") as file:
        file.write("( ( ( [MIN 1 ) 1 ) ] )\t1\r\n")
    assert listops.checksum(listops.Options(), tmp_path / "b") != first
    assert listops.checksum(listops.Options(source="generated"), tmp_path / "b") not in (first, second)


def test_release_missing_or_in_part(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"basic_train\.tsv, basic_val\.tsv, basic_test\.tsv are not in"):
        listops.fetch(listops.Options(source="release"), tmp_path)
    write_release(tmp_path / "listops")
    (tmp_path / "listops" / "basic_val.tsv").unlink()
    with pytest.raises(DataError, match=r"part of the release, but not basic_val.tsv"):
        listops.fetch(listops.Options(), tmp_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a\tb\n1\t2\n", "line 2: got Source ''"),
        ("Source\tTarget\n", "holds no examples"),
        ("Source\tTarget\n[MIN 1 2 ]\t1\n[ADD 1 2 ]\t3\n", r"line 3: got Source '\[ADD 1 2 \]'"),
        ("Source\tTarget\n[MIN 1 2 ]\t10\n", "line 2: .* and Target '10'"),
        ("Source\tTarget\n[MIN 1 2 ]\n", "line 2: .* and Target None"),
        (f"Source\tTarget\n[MIN {18 * '1 '}]\t1\n", "want an expression of fewer than 20 tokens"),
    ],
)
def test_release_that_is_something_else(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "basic_test.tsv").write_text(text)
    with pytest.raises(DataError, match=problem):
        listops.read_release(tmp_path / "basic_test.tsv", max_tree_length=20)


def test_options_without_effect_are_refused(tmp_path: Path) -> None:
    write_release(tmp_path / "listops")
    for function in (listops.checksum, listops.fetch, listops.load):
        with pytest.raises(DataError, match=r"the release is in .*, and num_test have no effect on it"):
            function(listops.Options(num_test=5), tmp_path)
    assert listops.origin(small(source="generated"), tmp_path) == "generated"


@pytest.mark.parametrize(
    "changes",
    [
        {"num_test": 0},
        {"generator_seed": -1},
        {"min_tree_length": 10, "max_tree_length": 11},
        {"min_tree_length": 0, "max_tree_length": 4},
        {"max_tree_length": 40_000},
    ],
)
def test_impossible_options(changes: dict) -> None:
    with pytest.raises(ValueError, match="|".join(changes)):
        small(**changes)


def test_lu2021_by_hand() -> None:
    ids = [VOCABULARY.index(token) for token in ["[SM", "1", "[MIN", "5", "4", "]", "]", "<pad>"]]
    got = to_lu2021(Examples(inputs=np.array([ids], np.uint8), labels=np.array([5]), lengths=np.array([7])))
    assert got.inputs.tolist() == [[14, 2, 11, 6, 5, 0, 0, 0]]
    assert got.lengths.tolist() == [5]


def test_lu2021_cuts_at_512_tokens(tmp_path: Path) -> None:
    default_lengths = listops.Options(num_train=5, num_validation=5, num_test=5)
    lra = listops.load(default_lengths, tmp_path)
    options = dataclasses.replace(default_lengths, tokenisation="lu2021")
    cut = listops.load(options, tmp_path)
    assert cut.shape == listops.shape(options)
    assert (cut.shape.num_tokens, cut.shape.num_token_ids) == (512, 15)
    assert (lra.shape.num_tokens, lra.shape.num_token_ids) == (2000, 16)
    for long, short in zip(lra.test.inputs.tolist(), cut.test.inputs.tolist(), strict=True):
        want = [token_id for token_id in long if token_id not in (0, 15)][:512]
        assert short == want + [0] * (512 - len(want))
    assert cut.train.lengths is not None
    assert cut.train.lengths.max() == 512


def test_generated_splits_are_disjoint(tmp_path: Path) -> None:
    data = listops.load(small(), tmp_path)
    assert listops.origin(small(), tmp_path) == "generated"
    splits = [{ids.tobytes() for ids in split.inputs.numpy()} for split in (data.train, data.validation, data.test)]
    assert [len(split) for split in splits] == [60, 20, 30]
    assert len(set.union(*splits)) == 110
    assert data.train.inputs.shape == (60, 40)
    assert data.train.lengths is not None
    assert data.train.lengths.max() < 40


def test_num_train_leaves_the_other_splits_alone(tmp_path: Path) -> None:
    few, many = (listops.load(small(num_train=n), tmp_path) for n in (10, 60))
    assert torch.equal(few.test.inputs, many.test.inputs)
    assert torch.equal(few.validation.inputs, many.validation.inputs)
    assert torch.equal(few.train.inputs, many.train.inputs[:10])


def test_checksum_depends_on_what_matters(tmp_path: Path) -> None:
    base = listops.checksum(small(), tmp_path)
    assert listops.checksum(small(tokenisation="lu2021", source="generated"), tmp_path) == base
    changes = [{"generator_seed": 1}, {"num_train": 61}, {"num_test": 31}, {"min_tree_length": 6}]
    assert len({base, *(listops.checksum(small(**change), tmp_path) for change in changes)}) == 5


@pytest.mark.parametrize("name", ["inputs", "labels", "lengths"])
@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_damaged_cache(tmp_path: Path, name: str, damage: str) -> None:
    listops.fetch(small(), tmp_path)
    path = generated_file(tmp_path)
    content = bytearray(path.read_bytes())
    with np.load(path) as arrays:
        place = content.index(arrays[name].tobytes())
    content[place] ^= 1
    path.write_bytes(content if damage == "flip" else content[:place])
    with pytest.raises(DataError, match=f"{path} is corrupted: it is not as it was written. Delete it"):
        listops.load(small(), tmp_path)


def test_a_folder_that_cannot_be_written_is_refused_unless_it_has_the_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as closed:
        closed.setattr(files, "is_writable", lambda folder: False)  # root may write anywhere, so no chmod
        with pytest.raises(DataError, match="is not writable"):
            listops.fetch(small(), tmp_path)
        assert list(tmp_path.iterdir()) == []
    made = listops.load(small(), tmp_path)
    monkeypatch.setattr(files, "is_writable", lambda folder: False)
    monkeypatch.delattr(listops, "generate")
    assert torch.equal(listops.load(small(), tmp_path).train.inputs, made.train.inputs)


def test_several_processes_generate_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, generate = tmp_path / "log.txt", listops.generate

    def slow(num_examples: int, seed: int, min_tree_length: int, max_tree_length: int) -> Examples:
        with log.open("a") as file:
            file.write("once\n")
        time.sleep(0.3)
        return generate(num_examples, seed, min_tree_length, max_tree_length)

    monkeypatch.setattr(listops, "generate", slow)
    in_four_processes(listops.fetch, small(), tmp_path)
    assert log.read_text() == "once\n"
    assert [path.name for path in (tmp_path / "listops").iterdir()] == [generated_file(tmp_path).name]
