"""ListOps of the Long Range Arena: nested list operations on digits, ten classes (Tay et al. 2020, section 2.2.1).

The release is read where the user has its files; otherwise the same distribution is generated, and `origin` says so.
The columns of its files are Source, an expression such as `( ( ( [MAX 2 ) 9 ) ] )`, and Target, its value. Round
parentheses follow from the tokens and are dropped.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lr_sweep.datasets import files

from .listops_examples import (
    CLOSER,
    FIRST_DIGIT,
    FIRST_OPERATOR,
    GENERATOR_VERSION,
    LU2021_NUM_TOKENS,
    OPERATORS,
    PAD,
    VOCABULARY,
    Examples,
    generate,
    read_or_make,
    to_lu2021,
)
from .task import LARGEST_SEED, DataError, Split, TaskData, TaskShape, check_limits

RELEASE = ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")
"""Training, validation and test file."""
FOLDERS = ("listops", "listops/listops-1000")
"""Where the files may lie below the data directory; the second is how the release unpacks."""
_IDS = bytes.maketrans(b"0123456789]", bytes([*range(FIRST_DIGIT, FIRST_OPERATOR), CLOSER]))
_LONGEST_TREE = 2**15 - 1
"""Lengths are kept as int16."""
_LARGEST_SPLIT = 10_000_000
"""Examples of a generated split: 20 GB at the default length, and half an hour to generate."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of ListOps. Defaults: the Long Range Arena, as in Rothermel et al. 2021."""

    source: Literal["auto", "release", "generated"] = "auto"
    """`release`: `basic_{train,val,test}.tsv` in `listops/` or `listops/listops-1000/` of the data directory.
    `generated`: our generator of the same distribution. `auto`: release if its files are there, else generated."""
    tokenisation: Literal["lra", "lu2021"] = "lra"
    """`lra`: all 15 tokens. `lu2021`: closers dropped and cut at 512 tokens, as in Lu et al.'s public code; the task
    can't be solved then."""
    generator_seed: int = 0
    """Picks the generated examples; has nothing to do with a run's seed."""
    num_train: int = 96_000
    """Generated training examples (Long Range Arena's public code). The other splits don't change with it."""
    num_validation: int = 2_000
    """Generated validation examples (Long Range Arena's public code)."""
    num_test: int = 2_000
    """Generated test examples (Long Range Arena's public code)."""
    min_tree_length: int = 500
    """Generated examples have more tokens (Long Range Arena's public code)."""
    max_tree_length: int = 2_000
    """Generated examples have fewer tokens (Long Range Arena's public code); also the padded length."""

    def __post_init__(self) -> None:
        check_limits(self, ("num_train", "num_validation", "num_test"), 1, _LARGEST_SPLIT)
        check_limits(self, ("generator_seed",), 0, LARGEST_SEED)
        shortest = max(self.min_tree_length + 1, 4)  # `[MIN 1 2 ]`
        if self.min_tree_length < 0 or not shortest < self.max_tree_length <= _LONGEST_TREE:
            raise ValueError(
                f"min_tree_length {self.min_tree_length} and max_tree_length {self.max_tree_length} are exclusive "
                f"bounds, at most {_LONGEST_TREE}, and no expression lies between them (the shortest has 4 tokens)"
            )


def shape(options: Options) -> TaskShape:
    """Return 2000 tokens out of 16 (`lu2021`: 512 out of 15), 10 classes."""
    width, num_ids = options.max_tree_length, len(VOCABULARY)
    if options.tokenisation == "lu2021":  # without the closer
        width, num_ids = min(LU2021_NUM_TOKENS, width), num_ids - 1
    return TaskShape(num_tokens=width, num_classes=10, num_token_ids=num_ids)


def num_train(options: Options) -> int:
    """Return the number of examples to generate, by default as many as the release has."""
    return options.num_train


def num_held_out(options: Options) -> int:
    """Return the number of validation and test examples."""
    return options.num_validation + options.num_test


def checksum(options: Options, data_dir: Path) -> str:
    """Return the sha256 of the release's files, or of what the generator depends on; raises DataError as `fetch`."""
    folder = _find_release(options, data_dir)
    return _release_checksum(folder) if folder else _generator_checksum(options)


def origin(options: Options, data_dir: Path) -> str:
    """Return `release` or `generated`; raises as `checksum`."""
    return "release" if _find_release(options, data_dir) else "generated"


def fetch(options: Options, data_dir: Path) -> None:
    """Read the release (10 s), or generate examples (20 s) unless it was done before.

    Raises DataError if files are missing or damaged, options have no effect on the release, or the folder is closed.
    """
    _examples(options, data_dir)


def load(options: Options, data_dir: Path) -> TaskData:
    """Read ListOps; inputs are (N, T) uint8 token ids."""
    import torch

    splits = _examples(options, data_dir)
    if options.tokenisation == "lu2021":
        splits = [to_lu2021(examples) for examples in splits]
    train, validation, test = (
        Split(
            inputs=torch.from_numpy(examples.inputs),
            labels=torch.from_numpy(examples.labels).long(),
            lengths=torch.from_numpy(examples.lengths).long(),
        )
        for examples in splits
    )
    return TaskData(shape=shape(options), train=train, validation=validation, test=test)


def _find_release(options: Options, data_dir: Path) -> Path | None:
    if options.source == "generated":
        return None
    folder = _release_folder(data_dir)
    if folder is None and options.source == "auto":
        return None
    if folder is None:
        raise DataError(
            f"listops: {', '.join(RELEASE)} are not in {data_dir / 'listops'}. Unpack the Long Range "
            "Arena's lra_release.gz and put them there, or set `source: generated`."
        )
    chosen, defaults = _generator_options(options), _generator_options(Options())
    if given := [name for name, value in chosen.items() if value != defaults[name]]:
        raise DataError(
            f"listops: the release is in {folder}, and {', '.join(given)} have no effect on it; leave them out, or set "
            "`source: generated`"
        )
    return folder


def _generator_options(options: Options) -> dict[str, Any]:
    content = dataclasses.asdict(options)
    del content["source"], content["tokenisation"]
    return content


def _generator_checksum(options: Options) -> str:
    content = _generator_options(options) | {"generator_version": GENERATOR_VERSION}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _examples(options: Options, data_dir: Path) -> list[Examples]:
    """Return training, validation and test examples; generated ones are kept on disk."""
    folder = _find_release(options, data_dir)
    if folder is not None:
        return [read_release(folder / name, options.max_tree_length) for name in RELEASE]
    num_held_out = options.num_test + options.num_validation
    examples = read_or_make(
        data_dir,
        f"generated-{_generator_checksum(options)[:16]}",
        lambda: generate(
            num_held_out + options.num_train,
            options.generator_seed,
            options.min_tree_length,
            options.max_tree_length,
        ),
    )
    # Test examples are first in the stream, so that `num_train` does not change them.
    return [
        examples[num_held_out:],
        examples[options.num_test : num_held_out],
        examples[: options.num_test],
    ]


def _release_folder(data_dir: Path) -> Path | None:
    """Return the folder with all three files, None without any; raises DataError where only some are there."""
    for folder in (data_dir / name for name in FOLDERS):
        missing = [name for name in RELEASE if not (folder / name).is_file()]
        if not missing:
            return folder
        if len(missing) < len(RELEASE):
            raise DataError(
                f"listops: {folder} has part of the release, but not {', '.join(missing)}. Add or remove all."
            )
    return None


def _release_checksum(folder: Path) -> str:
    hashes = [files.hash_file(folder / name) for name in RELEASE]
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def read_release(path: Path, max_tree_length: int) -> Examples:
    """Read one file; inputs are (N, max_tree_length) uint8. Raises DataError with the first line that is unsound."""
    examples = []
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file, delimiter="\t"), start=2):
            source, target = row.get("Source", ""), row.get("Target", "")
            ids = token_ids(source)
            if (
                not ids
                or len(ids) >= max_tree_length
                or target not in VOCABULARY[FIRST_DIGIT:FIRST_OPERATOR]
            ):
                raise DataError(
                    f"listops: {path}, line {number}: got Source {source[:200]!r} and Target {target!r}, want an "
                    f"expression of fewer than {max_tree_length} tokens and a digit. Unpack the Long Range Arena's "
                    "lra_release.gz again, or set `source: generated`."
                )
            examples.append((ids, int(target)))
    if not examples:
        raise DataError(f"{path} holds no examples, only a header")
    inputs = np.zeros((len(examples), max_tree_length), dtype=np.uint8)  # (N, T)
    for row_of_ids, (ids, _) in zip(inputs, examples, strict=True):
        row_of_ids[: len(ids)] = np.frombuffer(ids, dtype=np.uint8)
    lengths = np.array([len(ids) for ids, _ in examples], dtype=np.int16)
    return Examples(
        inputs=inputs,
        labels=np.array([value for _, value in examples], dtype=np.uint8),
        lengths=lengths,
    )


def token_ids(expression: str) -> bytes:
    """Return the id of each token, a byte each; empty if there is anything else in the expression."""
    for token_id, operator in enumerate(OPERATORS, FIRST_OPERATOR):
        expression = expression.replace(operator, chr(token_id))
    ids = expression.encode().translate(_IDS, delete=b"() ")
    return ids if max(ids, default=PAD) <= CLOSER else b""
