"""What tests of reports share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lr_sweep.tests.support.servers.headless_browser import Browser, browser


@contextmanager
def without_figures() -> Iterator[None]:
    def empty(_: object, stem: Path) -> tuple[Path, Path]:
        paths = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
        for path in paths:
            path.write_bytes(b"")
        return paths

    with pytest.MonkeyPatch.context() as patched:
        for module in ("figure_frame", "laws", "verdict"):
            patched.setattr(f"lr_sweep.analysis.report.{module}.save", empty)
        yield


@pytest.fixture
def undrawn() -> Iterator[None]:
    """Figures are made and not drawn, which would take nearly all of the time."""
    with without_figures():
        yield


@pytest.fixture(scope="module")
def undrawn_module() -> Iterator[None]:
    """The same for a module's own fixtures, and for its tests from then on."""
    with without_figures():
        yield


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started
