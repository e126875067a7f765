"""account.yaml: AWS's linter accepts it."""

from __future__ import annotations

import pytest

from lr_sweep.tests.support.tiny_study import ROOT


def test_aws_s_linter_accepts_it() -> None:
    api = pytest.importorskip("cfnlint.api")
    assert [str(match) for match in api.lint_file(ROOT / "docs" / "cluster" / "account.yaml")] == []
