"""Bodies of training functions for several processes, by DistributedDataParallel over gloo."""

from __future__ import annotations

START = """
import os
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
"""
DDP = f"""{START}
images, target = torch.randn(64, 12), torch.randn(64, 1)
model = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
model = DistributedDataParallel(model, find_unused_parameters=True)
optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
for step in session.steps(model=model, optimizer=optimizer):
    batch = torch.randint(0, 64, (16,))[rank::size]
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(images[batch]), target[batch]).backward()
    optimizer.step()
    if session.due and rank == 0:
        loss = torch.nn.functional.mse_loss(model.module(images), target).item()
        session.report(validation=loss, test=loss)
dist.destroy_process_group()
"""
NOISY = DDP.replace(
    "for step in session.steps(",
    """torch.manual_seed(100 * run.seed + rank)
drift = torch.nn.BatchNorm1d(12)
for step in session.steps(drift=drift, """,
).replace("model(images[batch])", "model(drift(images[batch] + 0.1 * torch.randn(len(batch), 12)))")
"""Each rank draws from a stream of its own, and has running means of its own."""
