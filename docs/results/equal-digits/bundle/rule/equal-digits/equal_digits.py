"""A small network on scikit-learn's digits: `trainable: equal_digits.py:train`. Variants differ in `stream` alone."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

VALIDATION, TEST = slice(800, 1300), slice(1300, None)


def train(run, session):
    """Train on the first 800 images; the seed of all that is random depends on the run's seed and on its stream."""
    torch.manual_seed(1000 * run.options["stream"] + run.seed)
    digits = load_digits()
    images, labels = (
        torch.from_numpy(digits.images).float().flatten(1) / 16,
        torch.from_numpy(digits.target),
    )
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), run.learning_rate)
    for _ in session.steps(model=model, optimizer=optimizer):
        batch = torch.randint(0, 800, (16,))
        model.train()
        optimizer.zero_grad()
        cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
        if session.due:
            validation, test = (
                accuracy(model, images[part], labels[part]) for part in (VALIDATION, TEST)
            )
            session.report(validation=validation, test=test)


@torch.no_grad()
def accuracy(model, images, labels):
    """Return the fraction of right answers."""
    model.eval()
    return (model(images).argmax(1) == labels).float().mean().item()
