"""ListOps of the Long Range Arena: nested list operations on digits, ten classes (Tay et al. 2020, section 2.2.1).

The release's files are read where the user has them; otherwise the same distribution is generated. Results are labelled
by which it was (`TaskData.origin`). The work is in `listops_release`, `listops_generator` and `listops_cache`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from datasets import files, listops_cache, listops_generator, listops_release
from datasets.listops_tokens import Examples, Tokenisation, num_token_ids, num_tokens, to_lu2021
from datasets.task import DataError, Split, TaskData, TaskShape

_SHORTEST_TREE = 4
"""`[MIN 1 2 ]`."""
_LONGEST_TREE = 2**15 - 1
"""Lengths are kept as int16."""
_LARGEST_SPLIT = 10_000_000
"""Examples of a generated split: 20 GB at the default length, and half an hour to generate."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What can be chosen about ListOps. Defaults: the Long Range Arena, as in Rothermel et al. 2021."""

    source: Literal["auto", "release", "generated"] = "auto"
    """`release`: `basic_{train,val,test}.tsv` in `listops/` or `listops/listops-1000/` of the data directory.
    `generated`: our generator of the same distribution. `auto`: release if its files are there, else generated."""
    tokenisation: Tokenisation = "lra"
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
    """Generated examples are longer than this, in tokens (Long Range Arena's public code)."""
    max_tree_length: int = 2_000
    """Generated examples are shorter than this, in tokens (Long Range Arena's public code); also the length that
    examples are padded to."""

    def __post_init__(self) -> None:
        sizes = {name: getattr(self, name) for name in ("num_train", "num_validation", "num_test")}
        for name, size in sizes.items():
            if not 1 <= size <= _LARGEST_SPLIT:
                raise ValueError(f"{name} is {size}, wanted 1 to {_LARGEST_SPLIT}")
        if not 0 <= self.generator_seed < 2**32:
            raise ValueError(f"generator_seed is {self.generator_seed}, wanted 0 to 2**32 - 1")
        shortest = max(self.min_tree_length + 1, _SHORTEST_TREE)
        if self.min_tree_length < 0 or not shortest < self.max_tree_length <= _LONGEST_TREE:
            raise ValueError(
                f"min_tree_length {self.min_tree_length} and max_tree_length {self.max_tree_length} are exclusive "
                f"bounds, at most {_LONGEST_TREE}, and no expression lies between them (the shortest has 4 tokens)"
            )
        if self.source == "release":
            _refuse_generator_options(self)


def shape(options: Options) -> TaskShape:
    """2000 tokens out of 16 (`lu2021`: 512 out of 15), 10 classes."""
    return TaskShape(
        num_tokens=num_tokens(options.tokenisation, options.max_tree_length),
        num_classes=10,
        num_token_ids=num_token_ids(options.tokenisation),
    )


def num_train(options: Options) -> int:
    """What is generated, by default as many as the release has."""
    return options.num_train


def checksum(options: Options, data_dir: Path) -> str:
    """sha256 of the release's files, or of what the generator depends on.

    Raises:
        DataError: `source` is `release` and its files are not there, or an option has no effect on them.
    """
    release = _find_release(options, data_dir)
    return listops_release.checksum(release) if release else _generator_checksum(options)


def origin(options: Options, data_dir: Path) -> str:
    """`release` or `generated`.

    Raises:
        DataError: see `checksum`.
    """
    return "release" if _find_release(options, data_dir) else "generated"


def fetch(options: Options, data_dir: Path) -> None:
    """Check the release line by line, or generate examples: about 20 s for 100k, unless it was done before.

    Raises:
        DataError: see `checksum`; the data directory does not exist, a line of the release is not as it should be, or
            there are not so many distinct examples.
    """
    release = _find_release(options, data_dir)
    if release is None:
        _ensure_generated(options, data_dir)
        return
    for path in (release / name for name in listops_release.NAMES):
        if _ensure_parsed(path, options.max_tree_length, data_dir) is None:
            listops_release.read(path, options.max_tree_length)


def load(options: Options, data_dir: Path) -> TaskData:
    """Read ListOps; inputs are (N, T) uint8 token ids.

    Raises:
        DataError: as `fetch`, or corrupted.
    """
    release = _find_release(options, data_dir)
    if release:
        splits = [_read_release(release / name, options.max_tree_length, data_dir) for name in listops_release.NAMES]
    else:
        splits = _read_generated(options, data_dir)
    if options.tokenisation == "lu2021":
        splits = [to_lu2021(examples) for examples in splits]
    train, validation, test = (_to_split(examples) for examples in splits)
    where = origin(options, data_dir)
    return TaskData(shape=shape(options), train=train, validation=validation, test=test, origin=where)


def _find_release(options: Options, data_dir: Path) -> Path | None:
    """Return the release's folder if it is the source, None if the generator is."""
    if options.source == "generated":
        return None
    folder = listops_release.find(data_dir)
    if folder is None and options.source == "release":
        raise DataError(
            f"listops: {', '.join(listops_release.NAMES)} are not in {data_dir / 'listops'}. Unpack the Long Range "
            "Arena's lra_release.gz and put them there, or set `source: generated`."
        )
    if folder is not None:
        try:
            _refuse_generator_options(options)
        except ValueError as error:
            raise DataError(f"listops: the release is in {folder}, and {error}") from error
    return folder


def _refuse_generator_options(options: Options) -> None:
    """Raise ValueError for options that would silently have no effect on the release."""
    given = [name for name, default in _generator_defaults().items() if getattr(options, name) != default]
    if given:
        raise ValueError(f"{', '.join(given)} have no effect on it; leave them out, or set `source: generated`")


def _generator_defaults() -> dict[str, Any]:
    """Return what the generator depends on, with defaults."""
    fields = dataclasses.fields(Options)
    return {field.name: field.default for field in fields if field.name not in ("source", "tokenisation")}


def _generator_checksum(options: Options) -> str:
    chosen = {name: getattr(options, name) for name in _generator_defaults()}
    content = json.dumps(chosen | {"generator_version": listops_generator.GENERATOR_VERSION}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _ensure_parsed(path: Path, max_tree_length: int, data_dir: Path) -> Path | None:
    """Return the folder of a release file's examples; None: no folder can be written."""
    kept = f"release-{files.hash_file(path)[:16]}-{listops_release.READER_VERSION}"
    try:
        return listops_cache.ensure(data_dir, kept, lambda: listops_release.read(path, max_tree_length))
    except listops_cache.NoPlaceError:
        return None


def _read_release(path: Path, max_tree_length: int, data_dir: Path) -> Examples:
    folder = _ensure_parsed(path, max_tree_length, data_dir)
    return listops_cache.read(folder) if folder else listops_release.read(path, max_tree_length)


def _ensure_generated(options: Options, data_dir: Path) -> Path:
    def generate() -> Examples:
        num_examples = options.num_test + options.num_validation + options.num_train
        return listops_generator.generate(
            num_examples, options.generator_seed, options.min_tree_length, options.max_tree_length
        )

    return listops_cache.ensure(data_dir, f"generated-{_generator_checksum(options)[:16]}", generate)


def _read_generated(options: Options, data_dir: Path) -> list[Examples]:
    """Read training, validation and test examples; test first in the stream, so that `num_train` does not change it."""
    examples = listops_cache.read(_ensure_generated(options, data_dir))
    held_out = options.num_test + options.num_validation
    return [examples[held_out:], examples[options.num_test : held_out], examples[: options.num_test]]


def _to_split(examples: Examples) -> Split:
    import torch

    return Split(
        inputs=torch.from_numpy(examples.inputs),
        labels=torch.from_numpy(examples.labels).long(),
        lengths=torch.from_numpy(examples.lengths).long(),
    )
