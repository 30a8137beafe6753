"""One Chromium for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.chromium import running_chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_chromium(tmp_path_factory.mktemp("chromium")) as address:
        yield address
