"""Environment variables of one submitted job, which its driver and its workers alone get: `submit --env`.

They travel in the job's metadata, encrypted with the cluster's token: Ray shows metadata to all who have the token, but
keeps it in memory. A variable of a job's `runtime_env` would be in plain text on Ray's page and in its logs.
"""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from .ray_internals import cluster_token, job_metadata

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

SECRETS_KEY = "lr_sweep_secrets"


def sealed(variables: Mapping[str, str]) -> str:
    """Return variables as one encrypted text; raises UserError if this user has no token."""
    return _cipher().encrypt(json.dumps(dict(variables)).encode()).decode()


def take_secrets() -> None:
    """Set the variables that this process's job was submitted with."""
    if text := job_metadata().get(SECRETS_KEY):
        os.environ.update(json.loads(_cipher().decrypt(text)))


def _cipher() -> Fernet:
    from cryptography.fernet import Fernet  # late: few jobs have secrets

    # MLflow's token is a checksum of the token alone.
    return Fernet(urlsafe_b64encode(sha256(f"secrets of {cluster_token()}".encode()).digest()))
