"""`figure coordinates`: exponents of known laws, sizes by hand; what grows under which parametrization."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from lr_sweep.sweep.inspection.figures import Row, exponents, sentence, sizes
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.runs import wanted_runs
from lr_sweep.tests.support.tiny_study import refused, said
from lr_sweep.trainables.models.initialise import build_classifier
from lr_sweep.trainables.run import Run
from lr_sweep.trainables.worker.session import task_data

STUDY = """\
study: widths
tasks: {digits: {num_steps: 100}}
models:
  narrow: {size: {layers: 1, heads: 2, width: 16, positions: 12}}
  middle: {size: {layers: 1, heads: 2, width: 64, positions: 12}}
  wide: {size: {layers: 1, heads: 2, width: 256, positions: 12}}
variants: [unfrozen-random]
learning_rates: [1e-3, 1e-2, 1e-1]
seeds: 2
protocol: {evaluate_every: 100}
"""


def written(folder: Path, old: str = "", new: str = "") -> Path:
    path = folder / "widths.yaml"
    path.write_text(STUDY.replace(old, new))
    return path


def test_exponents_of_laws_that_are_known() -> None:
    """Sizes of 3 width^0.5 and 2 width^-1, as means of two seeds; before the last step anything."""
    rows: list[Row] = [
        {"width": width, "seed": seed, "step": step, "layer": layer, "size": size * (1 + part) if step else 1.0}
        for width in (16, 64, 256)
        for layer, size in (("block 1", 3 * width**0.5), ("output", 2 / width))
        for seed, part in ((0, 0.5), (1, -0.5))
        for step in (0, 1)
    ]
    assert exponents(rows) == pytest.approx({"block 1": 0.5, "output": -1.0})


@pytest.mark.parametrize(
    ("first", "output", "expected"),
    [
        (0.25, 0.24, "block 1 grows with the width (block 1 width^0.25, output width^0.24)."),
        (0.5, 1.0, "block 1, output grow with the width (block 1 width^0.50, output width^1.00)."),
        (0.1, -0.5, "nothing grows with the width (block 1 width^0.10, output width^−0.50)."),
    ],
)
def test_what_exponents_say(first: float, output: float, expected: str) -> None:
    assert sentence({"block 1": first, "output": output}) == expected


def test_sizes_before_the_first_step_by_hand(tmp_path: Path) -> None:
    run = wanted_runs(load_study(written(tmp_path)), {}, tmp_path)[0].run
    assert isinstance(run, Run)
    data = task_data(run, tmp_path, "cpu")
    model = build_classifier(run, data.shape, None)
    tokens = data.tokens(data.train[:8].inputs)  # (B, T, token_dim)
    x = model.body.h[0](model.input_layer(tokens) + model.body.wpe.weight[:4], None)  # type: ignore[index, union-attr]
    expected = {"block 1": x, "output": model.output_layer(model.body.ln_f(x)[:, -1])}  # type: ignore[operator]
    rows = list(sizes(run, tmp_path, 2))
    assert [(row["step"], row["layer"]) for row in rows] == [(n, name) for n in range(3) for name in expected]
    for row, out in zip(rows, expected.values(), strict=False):
        assert row["size"] == pytest.approx(out.detach().abs().mean().item(), rel=1e-5)


def test_activations_grow_in_the_standard_parametrization_and_not_in_mup(tmp_path: Path) -> None:
    text = "widths, digits, unfrozen-random, 1 layer, at 1e-2 after 3 steps: "
    code, printed = said("figure", "coordinates", written(tmp_path), "--steps", "3", "--out", tmp_path)
    *paths, line = printed.splitlines()
    stem = tmp_path / "coordinates-widths-digits-unfrozen-random-1"
    assert (code, paths) == (0, [f"{stem}{ending}" for ending in (".csv", ".png", ".svg")])
    assert all(Path(path).stat().st_size for path in paths)
    assert line.startswith(text + "block 1, output grow with the width (block 1 width^")
    with Path(f"{stem}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["width", "seed", "step", "layer", "size"]
    assert len(rows) == 3 * 2 * 4 * 2  # widths, seeds, steps with the one before the first, layers
    path = written(tmp_path, "100}\n", "100, parametrization: mup}\n")
    again = said("figure", "coordinates", path, "--steps", "3", "--out", tmp_path)[1].splitlines()[-1]
    assert again.startswith(text + "nothing grows with the width (block 1 width^")


def test_models_of_other_depths_stand_apart(tmp_path: Path) -> None:
    path = written(tmp_path, "layers: 1, heads: 2, width: 16", "layers: 2, heads: 2, width: 16")
    _, printed = said("figure", "coordinates", path, "--steps", "1", "--out", tmp_path)
    assert printed.splitlines()[-1].startswith("widths, digits, unfrozen-random, 1 layer, at 1e-2 after 1 step: ")
    with (tmp_path / "coordinates-widths-digits-unfrozen-random-1.csv").open() as file:
        assert {row["width"] for row in csv.DictReader(file)} == {"64", "256"}


def test_sizes_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    printed = refused("figure", "coordinates", written(tmp_path), "--rate", "1e6", "--steps", "30", "--out", tmp_path)
    assert "at 1e6 after 30 steps: activations are not finite; give a smaller --rate, or fewer --steps" in printed
    assert not list(tmp_path.glob("coordinates-*"))


def test_a_study_of_one_width_or_without_rates_is_refused(tmp_path: Path) -> None:
    assert "want a GPT-2 that starts at random, in two widths or more" in refused("figure", "coordinates", "quickstart")
    path = written(tmp_path, "learning_rates: [1e-3, 1e-2, 1e-1]", "search: {low: 1e-4, high: 1e-1, rates: 6}")
    assert "its learning rates are searched for, none is given; want --rate" in refused("figure", "coordinates", path)
