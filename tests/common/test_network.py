"""Addresses as messages and records show them: without secrets."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.common.network import shown_uri, without_secrets
from lr_sweep.common.object_store import checked

PASSWORDS = ("plain", "pa/ss", "pa@ss", "pa:ss", "pa?ss", "pa#ss", "a/b@c:d?e#f", "//ss", "pa?x=y")
PLACES = {
    "http://{}host:5000/path": "http://host:5000/path",
    "postgresql+psycopg2://{}host/db": "postgresql+psycopg2://host/db",
    "mysql:{}host/db": "mysql:host/db",
}


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("place", PLACES)
def test_no_part_of_a_password_is_shown(place: str, password: str) -> None:
    assert shown_uri(place.format(f"me:{quote(password, safe='')}@")) == PLACES[place]
    shown = shown_uri(place.format(f"me:{password}@"))
    head = place.partition("{")[0]
    assert shown == (f"{head}..." if set(password) & set("?#") else PLACES[place])


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://host/x?token=secret&a=b", "http://host/x?..."),
        ("http://host?user=me@lab&token=secret", "http://..."),
        ("postgresql:///db?host=/run&password=secret", "postgresql:///db?..."),
        ("mssql://me:x@host/db;pwd=secret", "mssql://host/db?..."),
        ("http://host/#access_token=secret", "http://host/?..."),
        ("http://host:5000/#/experiments/3", "http://host:5000/#/experiments/3"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("sqlite:////home/me@lab/mlflow.db", "sqlite:////home/me@lab/mlflow.db"),
        ("runs@home/table-?.csv", "runs@home/table-?.csv"),
        ("http://[", "http://["),
    ],
)
def test_queries_are_cut_and_paths_are_whole(uri: str, shown: str) -> None:
    assert shown_uri(uri) == shown


def test_what_a_library_says_of_an_address_has_no_secret() -> None:
    """As `requests` writes it: the address with a path behind it, and then its query alone."""
    uri = "http://me:pa/ss@host:1?token=secret"
    said = f"API request to {uri}/api failed: Max retries exceeded with url: /?token=secret/api"
    assert (
        without_secrets(uri, said)
        == "API request to http://host:1?.../api failed: Max retries exceeded with url: /?.../api"
    )


@pytest.mark.parametrize("uri", ["s3://key:secret@bucket", "s3://key:sec/ret@bucket", "s3://bucket?key=secret"])
def test_the_address_of_a_store_has_no_credentials(uri: str) -> None:
    with pytest.raises(UserError) as caught:
        checked(uri)
    assert "sec" not in str(caught.value).replace("s3://bucket", "")
