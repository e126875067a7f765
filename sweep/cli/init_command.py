"""`init`: files to begin with, which run as they are; they are in `starters/`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import write_bytes
from lr_sweep.common.program import PROGRAM
from lr_sweep.sweep.cli import options as opt
from lr_sweep.sweep.cli.app import command

STARTERS = Path(__file__).parents[1] / "starters"


@command("--hf-trainer my-sweep")
def init(
    folder: Annotated[Path, opt.argument("FOLDER", "where the files go", opt.local_path)] = Path(),
    torch: Annotated[bool, opt.flag("a plain loop in PyTorch (the default)")] = False,
    hf_trainer: Annotated[bool, opt.flag("around Hugging Face's Trainer")] = False,
    lightning: Annotated[bool, opt.flag("around a LightningModule")] = False,
    judge: Annotated[bool, opt.flag("a sweep without this program, whose table `judge` reads")] = False,
) -> None:
    """Write a study and the code that it trains, to be changed into your own; they run as they are."""
    flags = {"torch": torch, "hf-trainer": hf_trainer, "lightning": lightning, "judge": judge}
    kinds = [name for name, given in flags.items() if given] or ["torch"]
    if len(kinds) > 1:
        raise UserError(f"got --{' and --'.join(kinds)}, want one of them")
    files = {folder / path.name: path for path in sorted((STARTERS / kinds[0]).glob("*.*"))}
    if taken := [str(path) for path in files if path.exists()]:
        raise UserError(f"nothing was written: {', '.join(taken)} would be replaced. Name another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    for path, source in files.items():
        write_bytes(path, source.read_bytes())
        print(f"wrote {path}")
    script, study = folder / "sweep.py", folder / "mine.yaml"
    steps = (
        [f"python {script}", f"{PROGRAM} judge runs.csv"]
        if judge
        else [f"{PROGRAM} {do} {study}" for do in ("plan", "run")]
    )
    print("next:\n  " + "\n  ".join(steps))
