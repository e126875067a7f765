"""What tests of reports share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lr_sweep.tests.support.servers.headless_browser import Browser, browser


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started
