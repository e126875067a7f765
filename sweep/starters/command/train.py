"""A script that knows nothing of the sweep: it takes options, trains, and prints."""

import argparse
import math
import random

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--momentum", type=float, default=0.0)
parser.add_argument("--epochs", type=int, default=10)
options = parser.parse_args()


def product(first, second):
    """Return the inner product of two lists."""
    return sum(left * right for left, right in zip(first, second, strict=True))


data = random.Random("data")  # the same for every seed: points with ten features, and noisy labels
true = [data.gauss(0, 1) for _ in range(10)]
points = [[data.gauss(0, 0.1 * 1.4**index) for index in range(10)] for _ in range(900)]
examples = [(point, product(point, true) + data.gauss(0, 0.3) > 0) for point in points]
train, validation, test = examples[:300], examples[300:600], examples[600:]

random.seed(options.seed)
weights, velocity = [random.gauss(0, 1) for _ in range(10)], [0.0] * 10


def accuracy(split):
    """Return the share of right predictions."""
    return sum((product(point, weights) > 0) == label for point, label in split) / len(split)


for epoch in range(1, options.epochs + 1):
    random.shuffle(train)
    for point, label in train:
        predicted = 1 / (1 + math.exp(-max(-30, min(30, product(point, weights)))))
        velocity = [
            options.momentum * old + (predicted - label) * x
            for old, x in zip(velocity, point, strict=True)
        ]
        weights = [
            weight - options.lr * step for weight, step in zip(weights, velocity, strict=True)
        ]
    print(f"epoch {epoch}: val_acc={accuracy(validation):.4f} test_acc={accuracy(test):.4f}")
