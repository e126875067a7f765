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


# The data is the same for every seed: points with ten features, and noisy labels.
data = random.Random("data")
true = [data.gauss(0, 1) for _ in range(10)]
sizes = [0.1 * 1.4**index for index in range(10)]
points = [[data.gauss(0, size) for size in sizes] for _ in range(900)]
labels = [product(point, true) + data.gauss(0, 0.3) > 0 for point in points]

examples = list(zip(points, labels, strict=True))
train = examples[:300]
validation = examples[300:600]
test = examples[600:]

random.seed(options.seed)
weights = [random.gauss(0, 1) for _ in range(10)]
velocity = [0.0] * 10


def accuracy(split):
    """Return the share of right predictions."""
    right = [(product(point, weights) > 0) == label for point, label in split]
    return sum(right) / len(split)


for epoch in range(1, options.epochs + 1):
    random.shuffle(train)
    for point, label in train:
        logit = max(-30, min(30, product(point, weights)))
        error = 1 / (1 + math.exp(-logit)) - label
        for index, x in enumerate(point):
            velocity[index] = options.momentum * velocity[index] + error * x
            weights[index] -= options.lr * velocity[index]
    print(f"epoch {epoch}: val_acc={accuracy(validation):.4f} test_acc={accuracy(test):.4f}")
