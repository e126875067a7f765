"""Gradients add up over several steps before the optimizer takes one."""

import torch
from problem import drawn, loss_of, network, report


def train(run, session):
    """Train one run."""
    every = run.options["every"]
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
    for step in session.steps(model=model, optimizer=optimizer):
        (loss_of(model, drawn()) / every).backward()
        if step % every == 0:
            optimizer.step()
            optimizer.zero_grad()
        report(session, model)
