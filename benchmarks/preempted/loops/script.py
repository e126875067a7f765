"""A script with options: it resumes from a folder's checkpoint where it is given one."""

import argparse
import time
from pathlib import Path

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", type=int)
parser.add_argument("--steps", type=int)
parser.add_argument("--checkpoint", type=Path)
given = parser.parse_args()
torch.manual_seed(given.seed)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), given.lr)
file = given.checkpoint / "state.pt" if given.checkpoint else None
first = 1
if file and file.exists():
    state = torch.load(file)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    first = state["step"] + 1
for step in range(first, given.steps + 1):
    inputs = torch.randn(16, 8)
    optimizer.zero_grad()
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"step={step} val={loss.item():.9f} test={loss.item() + 1:.9f}", flush=True)
    if file:
        names = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(
            {**names, "random": torch.get_rng_state(), "step": step}, file.with_suffix(".new")
        )
        file.with_suffix(".new").rename(file)
    time.sleep(0.01)
