"""What tests of reports share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lr_sweep.tests.support.servers.headless_browser import Browser, browser


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made and not drawn, which would take nearly all of the time."""

    def empty(_: object, stem: Path) -> tuple[Path, Path]:
        paths = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
        for path in paths:
            path.write_bytes(b"")
        return paths

    for module in ("figure_frame", "laws", "decided"):
        monkeypatch.setattr(f"lr_sweep.analysis.report.{module}.save", empty)


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started
