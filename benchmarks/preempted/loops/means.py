"""Running means of the inputs, kept in a tensor of the function and not passed."""

import torch
from problem import drawn, learn, network, report


def train(run, session):
    """Train one run."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
    means = torch.zeros(8)
    for _ in session.steps(model=model, optimizer=optimizer):
        inputs, labels = drawn()
        means = 0.9 * means + 0.1 * inputs.mean(dim=0)
        learn(model, optimizer, (inputs - means, labels))
        report(session, model)
