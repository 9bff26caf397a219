"""Every form of the KV connector under the real parsers and configuration checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import aggregated, environment, layout, model, role

from engine.build import PARSERS, Engine
from engine.cases import ask, command_lines

OFFLOAD = {"offload": {"hostGiB": 64}}
FORMS: dict[str, dict[str, Any]] = {
    "every setting": model(connector={"leaseSeconds": 60, "loadFailurePolicy": "recompute", "numThreads": 8, "bufferDevice": "cpu"}),
    "push": model(connector={"mode": "push"}),
    "push, stages on prefill": model(connector={"mode": "push"}, prefill=role(pipelineParallel=2)),
    "offload beside NIXL": model(connector=OFFLOAD),
    "offload beside push": model(connector={"mode": "push", **OFFLOAD}),
    "offload of a server": aggregated(connector=OFFLOAD),
}


@pytest.mark.parametrize("engine", PARSERS, ids=lambda e: e.version)
def test_connectors_are_taken(engine: Engine, tmp_path: Path) -> None:
    """Parser and configuration of each version take what `connector` generates, stages on prefill with the push connector included."""
    lines = [line for name, one in FORMS.items() for line in command_lines(name, layout(environment(one)).groups)]
    assert [(v.name, v.reason) for v in ask(engine, lines, tmp_path) if not v.accepted] == []
