"""The suite that asks the real engine; `make engine` installs what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_stacks import ADDRESSES

from engine.build import PARSERS, SERVING


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Servers talk to each other on loopback; a test whose engines are not there is skipped, with the reason."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.allow_hosts(["127.0.0.1", *ADDRESSES]))
            needed = [SERVING] if item.path.name.startswith("test_serving") else PARSERS
            missing = [f"vLLM {e.version}: {e.why_not}" for e in needed if not e.is_built]
            if missing:
                item.add_marker(pytest.mark.skip(reason="; ".join(missing)))
