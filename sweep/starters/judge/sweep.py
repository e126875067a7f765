"""A sweep without any tool: writes `runs.csv`, a row an evaluation, which `lr-sweep judge runs.csv` reads."""

import csv
from pathlib import Path

import torch
from sklearn.datasets import load_digits

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
LEARNING_RATES = (1e-3, 1e-2, 1e-1, 1.0)
SEEDS = (0, 1, 2)
NUM_STEPS, EVERY = 100, 20

images, labels = map(torch.tensor, load_digits(return_X_y=True))
images = images.float() / 16
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
train, validation, test = order[:1000], order[1000:1400], order[1400:]


def accuracy(model: torch.nn.Module, split: torch.Tensor) -> float:
    """Return the share of a split's examples that a model names."""
    with torch.no_grad():
        return (model(images[split]).argmax(dim=1) == labels[split]).float().mean().item()


with Path("runs.csv").open("w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["variant", "lr", "seed", "step", "val_acc", "test_acc"])
    for name, optimizer_class in OPTIMIZERS.items():
        for learning_rate in LEARNING_RATES:
            for seed in SEEDS:
                torch.manual_seed(seed)
                model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
                optimizer = optimizer_class(model.parameters(), lr=learning_rate)
                for step in range(1, NUM_STEPS + 1):
                    batch = train[torch.randint(len(train), (64,))]
                    loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    if step % EVERY == 0:
                        row = [name, learning_rate, seed, step, accuracy(model, validation), accuracy(model, test)]
                        table.writerow(row)
