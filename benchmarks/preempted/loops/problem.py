"""Task of the planted loops: which of four numbers is the largest, by a small network."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy


def points(split, number):
    """Return inputs (number, 8) float32 and labels (number,) int64 of a split."""
    inputs = torch.randn(number, 8, generator=torch.Generator().manual_seed(split))
    return inputs, inputs[:, :4].argmax(dim=1)


INPUTS, LABELS = points(0, 240)


def network():
    """Return a model with dropout."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))


def drawn(number=8):
    """Return a batch that torch's own generator draws."""
    batch = torch.randint(len(INPUTS), (number,))
    return INPUTS[batch], LABELS[batch]


def loss_of(model, batch):
    """Return the loss of a batch."""
    inputs, labels = batch
    return cross_entropy(model(inputs), labels)


def learn(model, optimizer, batch):
    """Take a gradient step."""
    optimizer.zero_grad()
    loss_of(model, batch).backward()
    optimizer.step()


def batches(loader):
    """Yield batches, epoch after epoch."""
    while True:
        yield from loader


@torch.no_grad()
def report(session, model):
    """Report the losses of two splits where they are due."""
    if session.due:
        was_training = model.training
        model.eval()
        validation, test = (loss_of(model, points(split, 64)).item() for split in (1, 2))
        model.train(was_training)
        session.report(validation=validation, test=test)
