"""The quickstart's grid as a script of Ray Tune and transformers alone, one run a trial: the peer of `peer_speed.py`.

`python benchmarks/plain_ray_tune.py --weights FOLDER --output runs.csv`; FOLDER is a GPT-2 as transformers saves it.
"""

import argparse
from pathlib import Path

import torch
from ray import tune
from sklearn.datasets import load_digits
from torch import nn
from transformers import GPT2Config, GPT2Model

VARIANTS = ["frozen-random", "frozen-pretrained", "unfrozen-random", "unfrozen-pretrained"]
LEARNING_RATES = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
SEEDS = [0, 1, 2]
BATCH_SIZE, NUM_STEPS, EVALUATE_EVERY = 8, 600, 100
TRAINED_IF_FROZEN = ("ln_", "wpe")


class Classifier(nn.Module):
    """Linear input, GPT-2, linear output on the last position."""

    def __init__(self, body: GPT2Model) -> None:
        super().__init__()
        width = body.config.n_embd
        self.input, self.body, self.output = nn.Linear(16, width), body, nn.Linear(width, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits (B, 10) of tokens (B, 4, 16)."""
        return self.output(self.body(inputs_embeds=self.input(tokens)).last_hidden_state[:, -1])


def load_splits() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Read train, validation and test: tokens (N, 4, 16), patches of 4x4, and labels (N,)."""
    images, labels = (torch.tensor(values) for values in load_digits(return_X_y=True))
    patches = images.float().view(-1, 2, 4, 2, 4).transpose(2, 3) / 16  # (N, 2, 2, 4, 4)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return [
        (patches.reshape(-1, 4, 16)[part], labels[part]) for part in order.split([1197, 300, 300])
    ]


@torch.no_grad()
def accuracy(model: nn.Module, tokens: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of a split that the model gets right."""
    model.eval()
    return (model(tokens).argmax(-1) == labels).float().mean().item()


def make_model(variant: str, weights: str) -> Classifier:
    """Build a variant's model, parts that are not trained frozen."""
    random = GPT2Model(GPT2Config(vocab_size=256, n_positions=256, n_embd=64, n_layer=2, n_head=4))
    model = Classifier(
        GPT2Model.from_pretrained(weights) if variant.endswith("-pretrained") else random
    )
    if variant.startswith("frozen"):
        for name, parameter in model.body.named_parameters():
            parameter.requires_grad = any(part in name for part in TRAINED_IF_FROZEN)
    return model


def train(config: dict) -> None:
    """Train one run and report its accuracies."""
    torch.manual_seed(config["seed"])
    torch.set_num_threads(1)
    train_split, validation, test = load_splits()
    model = make_model(config["variant"], config["weights"])
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=config["learning_rate"])
    for step in range(1, NUM_STEPS + 1):
        model.train()
        batch = torch.randint(len(train_split[0]), (BATCH_SIZE,))
        loss = nn.functional.cross_entropy(model(train_split[0][batch]), train_split[1][batch])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        if step % EVALUATE_EVERY == 0:
            splits = {
                "validation": validation,
                "test": test,
                "train": [part[:300] for part in train_split],
            }
            tune.report(
                {"step": step, **{name: accuracy(model, *split) for name, split in splits.items()}}
            )


def main() -> None:
    """Run the grid and write the last report of every trial."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    chosen = parser.parse_args()
    axes = {"variant": VARIANTS, "learning_rate": LEARNING_RATES, "seed": SEEDS}
    fixed = {"weights": str(chosen.weights.resolve())}
    space = {name: tune.grid_search(values) for name, values in axes.items()} | fixed
    stored = tune.RunConfig(
        storage_path=str(chosen.output.parent.resolve() / "ray_results"), verbose=0
    )
    results = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}), param_space=space, run_config=stored
    ).fit()
    results.get_dataframe().to_csv(chosen.output, index=False)
    if results.errors:
        raise SystemExit(f"{len(results.errors)} trials failed")


if __name__ == "__main__":
    main()
