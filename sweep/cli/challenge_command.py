"""`challenge`: whether a bundle's claim holds; slow imports stay inside."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli import options as opt

from .app import command

if TYPE_CHECKING:
    from lr_sweep.sweep.claims.challenge import Train
    from lr_sweep.sweep.results.directory import Results
    from lr_sweep.sweep.study.study import Study


@command("challenge mine-bundle --runs 5")
def challenge(
    bundle: Annotated[
        Path, opt.argument("DIR", "A folder that `report --bundle` wrote.", opt.local_path)
    ],
    runs: Annotated[int, opt.number("Runs to train again.")] = 5,
    seed: Annotated[
        int | None, opt.number("Draw the runs of an earlier challenge again.", least=0)
    ] = None,
    trust: Annotated[
        bool, opt.flag("Run the bundle's own code, which is listed first, without asking.")
    ] = False,
    registered: Annotated[
        Path | None,
        opt.option("FILE", "Want all that this list of `plan --register` has.", opt.local_path),
    ] = None,
    data_dir: opt.DataDir = None,
    gpus_per_trial: opt.GpusPerTrial = None,
) -> int:
    """Check a published bundle: compute its report again and train some of its runs again; the exit code is 1 if
    something differs.
    """
    from lr_sweep.sweep.claims.challenge import Request
    from lr_sweep.sweep.claims.challenge import challenge as challenged
    from lr_sweep.sweep.terminal import lasting_output, signals_as_ctrl_c

    def allow(parts: str) -> None:
        opt.say(f"This challenge trains with {parts}.")
        unasked = "nothing was run: read the files that are listed above, then give --trust"
        if not trust and not opt.agreed("Run it with your permissions?", unasked):
            raise UserError("nothing was run")

    folder = opt.data_folder(data_dir)
    request = Request(
        num_runs=runs,
        seed=secrets.randbelow(10**6) if seed is None else seed,
        data_dir=folder,
        train=_trainer(folder),
        allow=allow,
        registered=registered,
        resources={} if gpus_per_trial is None else {"gpus_per_trial": gpus_per_trial},
    )
    with lasting_output(), signals_as_ctrl_c():
        return 0 if challenged(bundle, request, opt.say) else 1


def _trainer(data_dir: Path) -> Train:
    """Return what trains runs as `run` does, and reports to no MLflow of the user's."""

    def train(study: Study, results: Results, run_ids: Sequence[str]) -> None:
        from lr_sweep.sweep.plan.placement import Placement
        from lr_sweep.sweep.tune.run_study import run_study
        from lr_sweep.sweep.tune.work import Options

        os.environ.pop("MLFLOW_TRACKING_URI", None)
        placement = Placement(resources=study.resources)
        only = {"run": frozenset(run_ids)}
        options = Options(results=results, data_dir=data_dir, placement=placement, only=only)
        if run_study(study, options, opt.say).stopped:
            raise KeyboardInterrupt

    return train
