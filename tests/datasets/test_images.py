"""Images to patches, and the splits and numbers of MNIST, CIFAR-10, CIFAR-10 LRA and digits."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import pickle
import struct
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch

from lr_sweep.datasets import TASKS, cifar10, cifar10_lra, digits, mnist
from lr_sweep.datasets.images import draw_per_class, to_patches
from lr_sweep.datasets.loaded import mismatches
from lr_sweep.datasets.task import DataError, Split, TaskData, options_content
from lr_sweep.tests.support.task_files import require


def test_patch_order_by_hand() -> None:
    # One 2x4 image of two channels: pixel (row, column) holds (10 * row + column, the same + 100).
    image = torch.tensor([[[[0, 100], [1, 101], [2, 102], [3, 103]], [[10, 110], [11, 111], [12, 112], [13, 113]]]])
    assert to_patches(image, patch_size=2).tolist() == [
        [[0, 100, 1, 101, 10, 110, 11, 111], [2, 102, 3, 103, 12, 112, 13, 113]]
    ]


def test_draw_per_class_partitions() -> None:
    labels = torch.tensor([0, 1, 1, 0, 1, 0, 0])
    drawn, left = draw_per_class(labels, 2, np.random.RandomState(0))
    assert labels[drawn].bincount().tolist() == [2, 2]
    assert sorted(drawn.tolist() + left.tolist()) == list(range(7))
    assert drawn.tolist() == sorted(drawn.tolist())


def contents(split: Split) -> set[bytes]:
    """Hashes of the examples of a split."""
    return {hashlib.md5(example.tobytes()).digest() for example in split.inputs.numpy()}


def counts(split: Split) -> list[int]:
    return split.labels.bincount().tolist()


def write_idx(path: Path, array: np.ndarray) -> str:
    """Write a .gz file of the MNIST format; returns its md5."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture
def tiny_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with 30 training and 10 test images; image i has pixel value i at row 1, column 2."""
    raw = tmp_path / "mnist/MNIST/raw"
    md5s = {}
    for prefix, num_images in (("train", 30), ("t10k", 10)):
        images = np.zeros((num_images, 28, 28))
        images[:, 1, 2] = np.arange(num_images)
        for name, array in (("images-idx3", images), ("labels-idx1", np.arange(num_images) % 10)):
            file_name = f"{prefix}-{name}-ubyte.gz"
            md5s[f"MNIST/raw/{file_name}"] = write_idx(raw / file_name, array)
    monkeypatch.setattr(mnist, "FILES", dataclasses.replace(mnist.FILES, md5s=md5s))
    return tmp_path


@pytest.mark.parametrize(
    ("options", "shape", "place"),
    [
        # With two black pixels around, row 1 and column 2 are row 3 and column 4: row 3, column 0 of the second patch.
        ({}, (64, 16), (1, 12)),
        ({"image_size": 28}, (49, 16), (0, 6)),  # row 1, column 2 of the first patch
        ({"image_size": 28, "patch_size": 7}, (16, 49), (0, 9)),
    ],
)
def test_mnist_pixels_by_hand(
    options: dict[str, Any], shape: tuple[int, int], place: tuple[int, int], tiny_mnist: Path
) -> None:
    chosen = mnist.Options(validation_per_class=1, **options)
    data = mnist.load(chosen, tiny_mnist)
    assert data.test.inputs.shape == (10, *shape)
    assert data.test.inputs.dtype == torch.uint8
    assert data.test.inputs[7].nonzero().tolist() == [list(place)]
    assert data.tokens(data.test.inputs)[(7, *place)] == pytest.approx(7 / 255)
    assert data.shape == mnist.shape(chosen)
    assert (counts(data.train), counts(data.validation)) == ([2] * 10, [1] * 10)


@pytest.mark.parametrize(
    ("task", "options", "problem"),
    [
        ("mnist", {"image_size": 28, "patch_size": 8}, "patch_size is 8, wanted a divisor of 28: 1, 2, 4, 7, 14, 28"),
        ("mnist", {"validation_per_class": 6000}, "validation_per_class is 6000, wanted 1 to 5000"),
        ("cifar10", {"patch_size": 0}, "patch_size is 0, wanted a divisor of 32"),
        ("cifar10", {"num_validation": 10_001}, "num_validation is 10001, wanted 1 to 10000"),
        ("cifar10", {"num_train": 40_001}, "num_train is 40001, wanted 1 to 40000"),
    ],
)
def test_options_that_no_image_fits(task: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        TASKS[task].Options(**options)


def test_options_that_came_later_are_no_part_of_earlier_ids() -> None:
    assert options_content(cifar10.Options()) == {"validation_batch": 5, "augment": False}
    content = options_content(cifar10.Options(patch_size=8))
    assert content == {"validation_batch": 5, "augment": False, "patch_size": 8}
    assert cifar10.Options(**content) == cifar10.Options(patch_size=8)


def test_mnist_split_depends_on_the_split_seed_alone(tiny_mnist: Path) -> None:
    first, again, other = (
        mnist.load(mnist.Options(validation_per_class=1, split_seed=seed), tiny_mnist) for seed in (0, 0, 1)
    )
    assert torch.equal(first.validation.inputs, again.validation.inputs)
    assert not torch.equal(first.validation.inputs, other.validation.inputs)
    assert torch.equal(first.test.inputs, other.test.inputs)


def test_mnist_splits() -> None:
    data_dir = require("mnist/MNIST/raw")
    before = sorted((data_dir / "mnist").rglob("*"))
    data = mnist.load(mnist.Options(), data_dir)
    assert counts(data.validation) == [1000] * 10
    assert counts(data.train) == [4923, 5742, 4958, 5131, 4842, 4421, 4918, 5265, 4851, 4949]  # published less 1000
    assert counts(data.test) == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    # These 70,000 images of MNIST all differ, so a shared one would show.
    assert len(contents(data.train) | contents(data.validation) | contents(data.test)) == 70_000
    assert sorted((data_dir / "mnist").rglob("*")) == before
    check_shape(data)


@pytest.fixture(scope="module")
def cifar10_data() -> TaskData:
    return cifar10.load(cifar10.Options(), require("cifar10/cifar-10-batches-py"))


def read_file(name: str) -> dict:
    """One of CIFAR-10's own files: `data` (10000, 3072) uint8, all red, then green, then blue; and `labels`."""
    path = require("cifar10/cifar-10-batches-py") / "cifar10/cifar-10-batches-py" / name
    return pickle.loads(path.read_bytes(), encoding="latin1")


def raw_test_pixel(index: int, row: int, column: int) -> list[int]:
    """Red, green and blue, 0 to 255."""
    return read_file("test_batch")["data"][index].reshape(3, 32, 32)[:, row, column].tolist()


def test_cifar10_in_larger_patches(cifar10_data: TaskData) -> None:
    options = cifar10.Options(patch_size=8, num_validation=50, num_train=70)
    data = cifar10.load(options, require("cifar10/cifar-10-batches-py"))
    assert data.shape == cifar10.shape(options)
    assert data.test.inputs.shape == (10_000, 16, 192)
    assert (len(data.validation), len(data.train)) == (50, cifar10.num_train(options)) == (50, 70)
    assert torch.equal(data.train.labels, cifar10_data.train.labels[:70])
    corner = data.tokens(data.validation.inputs)[:, 0].view(-1, 8, 8, 3)[:, :4, :4]
    assert torch.equal(corner.flatten(1), cifar10_data.tokens(cifar10_data.validation.inputs[:50])[:, 0])


def test_cifar10_splits(cifar10_data: TaskData) -> None:
    train, validation, test = cifar10_data.train, cifar10_data.validation, cifar10_data.test
    assert (len(train), len(validation), len(test)) == (40_000, 10_000, 10_000)
    assert [a + b for a, b in zip(counts(train), counts(validation), strict=True)] == [5000] * 10
    assert counts(test) == [1000] * 10
    assert len(contents(train) | contents(validation) | contents(test)) == 60_000
    check_shape(cifar10_data)


def test_cifar10_validation_batch_is_that_file(cifar10_data: TaskData) -> None:
    assert cifar10_data.validation.labels.tolist() == read_file("data_batch_5")["labels"]
    options = cifar10.Options(validation_batch=2)
    second = cifar10.load(options, require("cifar10/cifar-10-batches-py"))
    assert second.validation.labels.tolist() == read_file("data_batch_2")["labels"]
    third = cifar10_data.train.labels[20_000:30_000]
    assert torch.equal(second.train.labels[10_000:20_000], third)


def test_cifar10_pixel_by_hand(cifar10_data: TaskData) -> None:
    # Row 5, column 9: patch (1, 2) of an 8 x 8 grid is token 10; inside it row 1, column 1, so numbers 15 to 17.
    got = cifar10_data.tokens(cifar10_data.test.inputs[:1])[0, 10, 15:18].tolist()
    red, green, blue = (value / 255 for value in raw_test_pixel(0, 5, 9))
    want = [(red - 0.4914) / 0.2023, (green - 0.4822) / 0.1994, (blue - 0.4465) / 0.2010]
    assert got == pytest.approx(want, abs=1e-6)


def test_cifar10_lra_by_hand() -> None:
    data = cifar10_lra.load(cifar10_lra.Options(), require("cifar10/cifar-10-batches-py"))
    red, green, blue = raw_test_pixel(0, 5, 9)
    got = data.tokens(data.test.inputs[:1])[0, 5 * 32 + 9, 0].item()
    assert got == pytest.approx((0.2989 * red + 0.587 * green + 0.114 * blue) / 127.5 - 1, abs=1e-6)
    tokens = data.tokens(data.test.inputs)
    assert tokens.dtype == torch.float32
    assert -1 <= tokens.min() < -0.99
    assert 0.99 < tokens.max() <= 1
    assert (len(data.train), len(data.validation), len(data.test)) == (40_000, 10_000, 10_000)
    check_shape(data)


def test_digits_splits(tmp_path: Path) -> None:
    data, other = (digits.load(digits.Options(split_seed=seed), tmp_path) for seed in (0, 1))
    assert (len(data.train), counts(data.validation), counts(data.test)) == (1197, [30] * 10, [30] * 10)
    assert len(contents(data.train) | contents(data.validation) | contents(data.test)) == 1797
    assert data.tokens(data.train.inputs).aminmax() == (0, 1)
    assert list(tmp_path.iterdir()) == []
    check_shape(data)
    assert not torch.equal(data.test.inputs, other.test.inputs)
    # The frozen stream of RandomState: another answer would silently change every result on digits.
    assert hashlib.sha256(data.validation.inputs.numpy().tobytes()).hexdigest()[:16] == "86561c5d1039098c"


def test_digits_that_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(digits, "CHECKSUM", "0" * 64)
    with pytest.raises(DataError, match="other images than expected"):
        digits.fetch(digits.Options(), tmp_path)


@pytest.mark.parametrize("task", TASKS)
def test_whole_numbers_among_options_have_limits(task: str) -> None:
    kind = TASKS[task].Options
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in dataclasses.fields(kind) if type(field.default) is int]
    for name in names:
        for wrong in (-1, 2**63):
            if hints[name] is int:  # choices are checked where a study is read
                with pytest.raises(ValueError, match=name):
                    kind(**{name: wrong})


@pytest.mark.parametrize(
    ("task", "options", "num_train", "num_classes"),
    [
        ("digits", {}, 1197, 10),
        ("mnist", {}, 50_000, 10),
        ("mnist", {"validation_per_class": 5000}, 10_000, 10),
        ("cifar10", {}, 40_000, 10),
        ("cifar10-lra", {}, 40_000, 10),
        ("listops", {}, 96_000, 10),
        ("listops", {"num_train": 7}, 7, 10),
        ("bit-memory", {}, 10**9, 2),
        ("bit-xor", {}, 10**9, 2),
        ("remote-homology", {}, 12_312, 1195),
    ],
)
def test_sizes_and_checksum_are_known_without_data(
    task: str, options: Any, num_train: int, num_classes: int, tmp_path: Path
) -> None:
    definition, chosen = TASKS[task], TASKS[task].Options(**options)
    assert (definition.num_train(chosen), definition.shape(chosen).num_classes) == (num_train, num_classes)
    checksum = definition.checksum(chosen, tmp_path)
    assert len(checksum) == 64
    assert checksum == definition.checksum(chosen, tmp_path)


def check_shape(data: TaskData) -> None:
    """The shape announced is the shape of the splits."""
    assert list(mismatches(data, data.shape)) == []
