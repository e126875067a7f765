"""A script that knows nothing of the sweep: it takes options, trains, and prints."""

import argparse

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--momentum", type=float, default=0.0)
parser.add_argument("--epochs", type=int, default=10)
options = parser.parse_args()

examples = np.random.default_rng(0)  # the same for every seed: 1,000 points with 20 features and a noisy label
inputs = examples.normal(size=(1000, 20)) * np.geomspace(0.1, 3, 20)
labels = inputs @ examples.normal(size=20) + examples.normal(size=1000) > 0
train, validation, test = slice(0, 600), slice(600, 800), slice(800, 1000)

random = np.random.default_rng(options.seed)
weights, velocity = random.normal(size=20), np.zeros(20)


def accuracy(split):
    """Return the share of right predictions."""
    return np.mean((inputs[split] @ weights > 0) == labels[split])


for epoch in range(1, options.epochs + 1):
    for batch in random.permutation(600).reshape(-1, 20):
        predicted = 1 / (1 + np.exp(-np.clip(inputs[batch] @ weights, -30, 30)))
        velocity = options.momentum * velocity + inputs[batch].T @ (predicted - labels[batch]) / len(batch)
        weights -= options.lr * velocity
    print(f"epoch {epoch}: val_acc={accuracy(validation):.4f} test_acc={accuracy(test):.4f}")
