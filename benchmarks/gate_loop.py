"""An agent's loop on real training: 30 planted changes of a recipe on handwritten digits, under the gate and greedily.

    python -m benchmarks.gate_loop --rule gate "one run"

The recipe is a small network on scikit-learn's digits, by stochastic gradient descent. Half of the changes change
nothing, some are bugs, some are gains. Each run takes some 50 ms on a CPU. The truth of a change is the mean of 100
other seeds, against as many of the recipe that it changed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from lr_sweep.analysis.judge.gate import Comparison, Gate
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.judge.sides import read_side, stored_side
from lr_sweep.analysis.statistics.comparisons.sequential import NUM_SEEDS
from lr_sweep.benchmarks.shared import options

RECIPE = {
    "rate": 0.04,
    "decay": 1e-3,
    "momentum": 0.8,
    "width": 24,
    "epochs": 6,
    "shuffle": 1,
    "scale": 1.0,
}
CHANGES: Mapping[str, Mapping[str, float]] = {
    **{f"no change {i}": {} for i in range(15)},
    **{f"no shuffling {i}": {"shuffle": 0} for i in range(3)},
    **{f"half the decay {i}": {"decay": 5e-4} for i in range(3)},
    **{f"a third of the rate {i}": {"rate": 0.012} for i in range(3)},
    **{f"large first weights {i}": {"scale": 4.0} for i in range(2)},
    "momentum": {"momentum": 0.9},
    "twice the width": {"width": 48},
    "twice the epochs": {"epochs": 12},
    "twice the rate": {"rate": 0.08},
}
Recipe = tuple[tuple[str, float], ...]
FAR = 100_000
"""First seed of the runs that measure the truth."""
TRUTH_SEEDS = 100
NO_GAIN = 0.0005
"""Accuracy below which a true gain counts as none."""


@lru_cache(maxsize=1)
def _digits() -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return images[order] / 16 - 0.3, labels[order]


@cache
def accuracy(recipe: Recipe, seed: int) -> float:
    """Train the network on 600 images; return its accuracy on the others."""
    of, rng, (images, labels) = dict(recipe), np.random.default_rng(seed), _digits()
    width = int(of["width"])
    weights = [
        of["scale"] * rng.standard_normal((64, width)) / 8,
        rng.standard_normal((width, 10)) / width**0.5,
    ]
    speed = [np.zeros_like(each) for each in weights]
    for _ in range(int(of["epochs"])):
        order = rng.permutation(600) if of["shuffle"] else np.arange(600)
        for batch in order.reshape(-1, 20):
            hidden = np.maximum(images[batch] @ weights[0], 0)
            scores = np.exp(hidden @ weights[1])
            error = scores / scores.sum(1, keepdims=True) - np.eye(10)[labels[batch]]
            back = (error @ weights[1].T) * (hidden > 0)
            for i, slope in enumerate((images[batch].T @ back, hidden.T @ error)):
                speed[i] = of["momentum"] * speed[i] - of["rate"] * (
                    slope / len(batch) + of["decay"] * weights[i]
                )
                weights[i] = weights[i] + speed[i]
    guess = (np.maximum(images[600:] @ weights[0], 0) @ weights[1]).argmax(1)
    return float((guess == labels[600:]).mean())


def changed(recipe: Recipe, change: str) -> Recipe:
    """Return a recipe with a change."""
    return tuple((dict(recipe) | CHANGES[change]).items())


def truth(recipe: Recipe) -> float:
    """Return the mean accuracy of a recipe over seeds that decide nothing."""
    return float(np.mean([accuracy(recipe, seed) for seed in range(FAR, FAR + TRUTH_SEEDS)]))


def true_gain(recipe: Recipe, change: str) -> float:
    """Return the gain of a change over seeds that decide nothing."""
    return truth(changed(recipe, change)) - truth(recipe)


def greedy(order: Sequence[str], first: int) -> tuple[list[float], int, float]:
    """Keep a change whose single run beats the best so far; returns true gains, runs and the last value's bias."""
    recipe, gains = tuple(RECIPE.items()), list[float]()
    best = accuracy(recipe, first)
    for number, change in enumerate(order, start=1):
        value = accuracy(changed(recipe, change), first + number)
        if value > best:
            gains.append(true_gain(recipe, change))
            recipe, best = changed(recipe, change), value
    return gains, len(order) + 1, best - truth(recipe)


def gated(order: Sequence[str], first: int, folder: Path) -> tuple[list[float], int, float]:
    """Run the loop of docs/gate.md; returns true gains of what it kept, runs and the last value's bias."""
    recipe, gains, runs, seed = tuple(RECIPE.items()), list[float](), 0, first
    baseline, table, log = folder / "baseline.json", folder / "runs.csv", folder / "log.jsonl"

    def train(of: Recipe, number: int, new: bool) -> None:
        nonlocal seed, runs
        with table.open("w" if new else "a") as file:
            file.write("seed,val_acc\n" if new else "")
            file.writelines(f"{each},{accuracy(of, each)}\n" for each in range(seed, seed + number))
        seed, runs = seed + number, runs + number

    def answer() -> Gate:
        candidate = read_side(str(table), Reading())
        return Comparison(baseline=stored_side(baseline), candidate=candidate).streamed(
            log, table.name
        )

    train(recipe, NUM_SEEDS, new=True)
    read_side(str(table), Reading()).store(baseline)
    for change in order:
        table = folder / f"{change.replace(' ', '_')}.csv"
        train(changed(recipe, change), 2, new=True)
        while (found := answer()).decision == "run":
            train(changed(recipe, change), len(found.seeds), new=False)
        if found.decision == "accept":
            gains.append(true_gain(recipe, change))
            recipe = changed(recipe, change)
            train(recipe, NUM_SEEDS, new=True)
            read_side(str(table), Reading()).store(baseline)
    stored = np.mean([accuracy(recipe, each) for each in range(seed - NUM_SEEDS, seed)])
    return gains, runs, float(stored - truth(recipe))


def loop(rule: str, number: int) -> tuple[list[float], int, float]:
    """Run one loop, with an order of the changes and seeds of its own."""
    order = np.random.default_rng(number).permutation(list(CHANGES)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        if rule == "gate":
            return gated(order, 1000 * number, Path(folder))
        return greedy(order, 1000 * number)


def main() -> None:
    """Print what both rules kept, and what it cost, over several orders of the changes."""
    given = options(__doc__, loops=6, rule=("gate", "one run"))
    for rule in given.rule:
        gains, runs, biases = zip(
            *(loop(rule, number) for number in range(given.loops)), strict=True
        )
        kept = np.concatenate(gains)
        whole = 100 * kept.sum() / given.loops
        print(
            f"{rule}: kept {len(kept) / given.loops:.1f} changes, {np.mean(kept < NO_GAIN):.0%} of them without a "
            f"gain; true gain {whole:.2f} points; {np.mean(runs):.0f} runs; its value is "
            f"{100 * np.mean(biases):+.2f} points off",
            flush=True,
        )


if __name__ == "__main__":
    main()
