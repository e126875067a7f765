"""MLflow on the head of a cluster, only for those who have its token:

    MLFLOW_BACKEND_STORE_URI=... python -P -m lr_sweep.sweep.cluster.mlflow_server --port=5000

Artifacts are kept in the current folder. The token is a checksum of Ray's token, which does not reveal that token:
those who may start jobs on the cluster can compute it.
"""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.live.guard import LOOPBACK, Guard
from lr_sweep.sweep.mirror.client import MirrorError
from lr_sweep.sweep.mirror.pages import PREFIX, MlflowPages, runs_page

RAY_TOKEN = Path("~/.ray/auth_token")


def head_token() -> str:
    """Return the token of the MLflow server on a cluster whose Ray token this user has; raises UserError."""
    try:
        return sha256(RAY_TOKEN.expanduser().read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"no token: {error}. `ray get-auth-token --generate` makes one") from error


def _server_app(uri: str, artifacts: Path, token: str, port: int) -> Starlette:
    """Return the server's application: MLflow, and at `/` the way to the page of all runs."""
    served = MlflowPages(takes_artifacts=True)
    served.open(uri, artifacts)

    def all_runs(request: Request) -> Response:
        try:
            return RedirectResponse(runs_page(uri))
        except MirrorError:  # no sweep has written to it yet
            return RedirectResponse(f"{PREFIX}/")

    app = Starlette(routes=[Route("/", all_runs), Mount(PREFIX, served)])
    app.add_middleware(Guard, token=token, port=port)
    return app


def main(option: str) -> None:
    """Serve until a signal ends it; `option` is `--port=NUMBER`."""
    port = int(option.removeprefix("--port="))
    app = _server_app(
        os.environ["MLFLOW_BACKEND_STORE_URI"], Path("artifacts").absolute(), head_token(), port
    )
    uvicorn.run(app, host=LOOPBACK, port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except UserError as problem:
        sys.exit(f"error: {problem}")
