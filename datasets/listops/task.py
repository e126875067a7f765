"""ListOps of the Long Range Arena: nested list operations on digits, ten classes (Tay et al. 2020, section 2.2.1).

The release's files are read where the user has them; otherwise the same distribution is generated. Results are labelled
by which it was (`origin`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lr_sweep.datasets import files
from lr_sweep.datasets.listops import generator, release
from lr_sweep.datasets.listops.examples import VOCABULARY, Examples, Tokenisation, num_tokens, read_or_make, to_lu2021
from lr_sweep.datasets.task import LARGEST_SEED, DataError, Split, TaskData, TaskShape, check_limits

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
    """Generated examples have more tokens (Long Range Arena's public code)."""
    max_tree_length: int = 2_000
    """Generated examples have fewer tokens (Long Range Arena's public code); also the length that
    examples are padded to."""

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
    return TaskShape(
        num_tokens=num_tokens(options.tokenisation, options.max_tree_length),
        num_classes=10,
        num_token_ids=len(VOCABULARY) - (options.tokenisation == "lu2021"),  # without the closer
    )


def num_train(options: Options) -> int:
    """Return the number of examples to generate, by default as many as the release has."""
    return options.num_train


def num_held_out(options: Options) -> int:
    """Return the number of validation and test examples."""
    return options.num_validation + options.num_test


def checksum(options: Options, data_dir: Path) -> str:
    """Return the sha256 of the release's files, or of what the generator depends on.

    Raises:
        DataError: `source` is `release` and its files are not there, or an option has no effect on them.
    """
    folder = _find_release(options, data_dir)
    return release.checksum(folder) if folder else _generator_checksum(options)


def origin(options: Options, data_dir: Path) -> str:
    """Return `release` or `generated`; raises as `checksum`."""
    return "release" if _find_release(options, data_dir) else "generated"


def fetch(options: Options, data_dir: Path) -> None:
    """Check the release line by line (100k: about a minute), or generate examples (20 s), unless it was done before.

    Raises:
        DataError: as `checksum`; the data directory does not exist, or the release or what was kept is corrupted;
            there are not so many distinct examples.
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
    folder = release.find(data_dir)
    if folder is None and options.source == "auto":
        return None
    if folder is None:
        raise DataError(
            f"listops: {', '.join(release.NAMES)} are not in {data_dir / 'listops'}. Unpack the Long Range "
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
    others = ("source", "tokenisation")
    return {name: value for name, value in dataclasses.asdict(options).items() if name not in others}


def _generator_checksum(options: Options) -> str:
    content = _generator_options(options) | {"generator_version": generator.GENERATOR_VERSION}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _examples(options: Options, data_dir: Path) -> list[Examples]:
    """Return training, validation and test examples; what is read of the release or generated is kept on disk."""
    folder = _find_release(options, data_dir)
    if folder is not None:
        return [_read_release(folder / name, options.max_tree_length, data_dir) for name in release.NAMES]
    num_held_out = options.num_test + options.num_validation
    examples = read_or_make(
        data_dir,
        f"generated-{_generator_checksum(options)[:16]}",
        lambda: generator.generate(
            num_held_out + options.num_train, options.generator_seed, options.min_tree_length, options.max_tree_length
        ),
    )
    # Test examples are first in the stream, so that `num_train` does not change them.
    return [examples[num_held_out:], examples[options.num_test : num_held_out], examples[: options.num_test]]


def _read_release(path: Path, max_tree_length: int, data_dir: Path) -> Examples:
    name = f"release-{files.hash_file(path)[:16]}-{release.READER_VERSION}"
    return read_or_make(data_dir, name, lambda: release.read(path, max_tree_length))
