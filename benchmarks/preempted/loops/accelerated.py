"""Accelerate adds gradients up over four steps, and its loader reads a batch ahead."""

import torch
from accelerate import Accelerator
from problem import INPUTS, LABELS, loss_of, network, report
from torch.utils.data import DataLoader, TensorDataset


def batches(loader):
    """Yield batches, epoch after epoch."""
    while True:
        yield from loader


def train(run, session):
    """Train one run."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
    loader = DataLoader(TensorDataset(INPUTS, LABELS), 8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = session.steps(model=model, optimizer=optimizer, loader=loader, accelerator=accelerator)
    for _, batch in zip(steps, batches(loader), strict=False):
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model, batch))
            optimizer.step()
            optimizer.zero_grad()
        report(session, model)
