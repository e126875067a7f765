"""`challenge`: whether a bundle's claim holds; slow imports stay inside."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli import options as opt

from .app import command


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
        bool, opt.flag("Use the bundle's study and code, which are listed first, without asking.")
    ] = False,
) -> int:
    """Check a published bundle: compute its report again and train some of its runs again; the exit code is 1 if
    something differs.
    """
    from lr_sweep.sweep.claims.challenge import challenge as challenged
    from lr_sweep.sweep.terminal import lasting_output, signals_as_ctrl_c

    def allow() -> None:
        refusal = "nothing was run: read the files that are listed above, then give --trust"
        if not trust and not opt.agreed(
            "Train this study, and run its code if it has some, with your permissions?", refusal
        ):
            raise UserError(refusal)

    drawn_by = secrets.randbelow(10**6) if seed is None else seed
    with lasting_output(), signals_as_ctrl_c():
        holds = challenged(bundle, runs, drawn_by, allow, opt.say)
    return int(not holds)
