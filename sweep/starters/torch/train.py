"""What one run trains: `train` is called once a run, with its learning rate, seed and options."""

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy


def data(device):
    """Return images (N, 64) float32, labels (N,) int64, and three splits of indices: train, validation, test."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images).float().to(device) / 16
    labels = torch.tensor(labels).to(device)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return images, labels, order.split([1000, 400, 397])


def build_optimizer(model, rate, options):
    """Return the optimizer of a variant, by the options that the study gives it."""
    if options["optimizer"] == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=rate)
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=options["momentum"])


def train(run, session):
    """Train one run; torch, numpy and `random` are seeded with run.seed."""
    images, labels, (training, validation, test) = data(session.device)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 10),
    )
    model.to(session.device)
    optimizer = build_optimizer(model, run.learning_rate, run.options)

    @torch.no_grad()
    def accuracy(split):
        return (model(images[split]).argmax(dim=1) == labels[split]).float().mean()

    # What is named here is saved, and so are the random generators of torch, numpy and `random`. Name all
    # that changes, also a schedule or a DataLoader (`loader=loader`): a resumed run is then the same to the bit.
    for _step in session.steps(model=model, optimizer=optimizer):
        batch = training[torch.randint(len(training), (64,))]
        optimizer.zero_grad()
        cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
        # Every protocol.evaluate_every steps: validation chooses, test is only reported.
        if session.due:
            session.report(validation=accuracy(validation), test=accuracy(test))
