"""Versions of libraries outside what was tried are named."""

from __future__ import annotations

from importlib import metadata

import pytest

from lr_sweep.sweep.results.provenance import untried_versions


def test_the_pinned_versions_are_inside_the_bounds() -> None:
    assert untried_versions() == []


def test_a_library_outside_its_bounds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _: ["ray[tune]<2.61,>=2.58", "rich", "moto>=9 ; extra == 'dev'"])
    monkeypatch.setattr(metadata, "version", {"ray": "2.61.0", "rich": "1.0", "moto": "8.0"}.__getitem__)
    assert untried_versions() == [
        "ray 2.61.0 is installed, but this program was tried with <2.61,>=2.58: "
        "if anything fails, `pip install 'ray<2.61,>=2.58'`"
    ]
