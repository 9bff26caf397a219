"""The suite that asks the real engine; `make engine` installs what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.build import ENGINES


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Servers talk to each other on loopback; without the engines everything is skipped, with the reason."""
    missing = [e.version for e in ENGINES if not e.is_built]
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.allow_hosts(["127.0.0.1"]))
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"vLLM {', '.join(missing)} is not installed here (run `make engine`)"))
