"""Batches are drawn by generators of the function's own, of torch and of numpy."""

import numpy as np
import torch
from problem import INPUTS, LABELS, learn, network, report


def train(run, session):
    """Train one run."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), run.learning_rate)
    order, noise = torch.Generator().manual_seed(3), np.random.default_rng(4)
    for _ in session.steps(model=model, optimizer=optimizer, order=order, noise=noise):
        batch = torch.randint(len(INPUTS), (8,), generator=order)
        inputs = INPUTS[batch] + torch.from_numpy(noise.normal(0, 0.1, (8, 8))).float()
        learn(model, optimizer, (inputs, LABELS[batch]))
        report(session, model)
