"""A real Chromium for the HTML page; the tests are skipped, with the reason, where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pages import write_pages

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser(pages: dict[str, Path]) -> Iterator[Browser]:  # noqa: ARG001 (its event loop bears no other, so programs are recorded before)
    """The machine's own Chromium."""
    sync_api: Any = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (make browser)")
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on the path (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        # inside containers there is often no user namespace for the sandbox, and the page is our own
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages by name: the shipped stacks, and plans that are odd in one way each."""
    return write_pages(tmp_path_factory.mktemp("pages"))
