"""Two processes add gradients up over four steps; three of the four are not averaged over the processes."""

import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from problem import drawn, loss_of, network, report
from torch.nn.parallel import DistributedDataParallel


def train(run, session):
    """Train one run."""
    dist.init_process_group("gloo")
    model = DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
    torch.manual_seed(100 * run.seed + int(os.environ["RANK"]))
    for step in session.steps(model=model, optimizer=optimizer):
        with nullcontext() if step % 4 == 0 else model.no_sync():
            loss_of(model, drawn()).backward()
        if step % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        report(session, model.module)
    dist.destroy_process_group()
