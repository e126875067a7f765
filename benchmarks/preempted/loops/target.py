"""A target network follows the trained one every ten steps, and its outputs are learned, too."""

import copy

import torch
from problem import drawn, loss_of, network, report


def train(run, session):
    """Train one run."""
    model = network()
    target = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
    saved = {"target": target} if run.options["passed"] else {}
    for step in session.steps(model=model, optimizer=optimizer, **saved):
        inputs, labels = drawn()
        optimizer.zero_grad()
        distance = (model(inputs) - target(inputs)).square().mean()
        (loss_of(model, (inputs, labels)) + distance).backward()
        optimizer.step()
        if step % 10 == 0:
            target.load_state_dict(model.state_dict())
        report(session, model)
