"""A loader of torch, in many forms: passed to the session, or forgotten."""

import random

import numpy as np
import torch
from problem import INPUTS, LABELS, batches, learn, network, report
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler


class Examples(Dataset):
    """Examples with noise, by the generators of `random` and numpy where `augments` is true."""

    def __init__(self, augments):
        self.augments = augments

    def __len__(self):
        return len(INPUTS)

    def __getitem__(self, index):
        noise = random.gauss(0, 0.1) + np.random.normal(0, 0.1) if self.augments else 0.0
        return INPUTS[index] + noise, LABELS[index]


class Stream(IterableDataset):
    """Examples in an order that torch draws anew in each epoch."""

    def __iter__(self):
        for index in torch.randperm(len(INPUTS)).tolist():
            yield INPUTS[index], LABELS[index]


class Drawn(Sampler):
    """Draws each epoch with a numpy generator of its own."""

    def __init__(self):
        self.generator = np.random.default_rng(7)

    def __len__(self):
        return len(INPUTS)

    def __iter__(self):
        yield from self.generator.permutation(len(INPUTS)).tolist()


def built(data="map", augments=False, sampler=False, generator=False, stateful=False, **more):
    """Return the loader of some options; `more` are options of torch's DataLoader."""
    if data == "stream":
        return DataLoader(Stream(), 8, **more)
    if sampler:
        more["sampler"] = Drawn()
    else:
        more["shuffle"] = True
    if generator:
        more["generator"] = torch.Generator().manual_seed(5)
    if stateful:
        from torchdata.stateful_dataloader import StatefulDataLoader

        return StatefulDataLoader(Examples(augments), 8, **more)
    return DataLoader(Examples(augments), 8, **more)


def train(run, session):
    """Train one run."""
    options = dict(run.options)
    passed = options.pop("passed")
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
    loader = built(**options)
    saved = {"loader": loader} if passed else {}
    steps = session.steps(model=model, optimizer=optimizer, **saved)
    for _, batch in zip(steps, batches(loader), strict=False):
        learn(model, optimizer, batch)
        report(session, model)
