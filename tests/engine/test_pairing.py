"""What prefill and decode must share, against the source of each engine."""

from __future__ import annotations

import ast

import pytest
from disagg_serving.planning.paired import HASHED

from engine.build import PARSERS, Engine

METADATA = "vllm/distributed/kv_transfer/kv_connector/v1/nixl/metadata.py"


@pytest.mark.parametrize("engine", PARSERS, ids=lambda e: e.version)
def test_factors_of_the_hash_are_known(engine: Engine) -> None:
    """NIXL's compatibility hash has no factor that the project has not looked at, so a release that adds one is not taken unseen."""
    (file,) = engine.folder.glob(f"lib/python3*/site-packages/{METADATA}")
    functions = {node.name: node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)}
    written = [node for node in ast.walk(functions["compute_nixl_compatibility_hash"]) if isinstance(node, ast.Dict)]
    factors = {key.value for node in written for key in node.keys if isinstance(key, ast.Constant)}
    assert factors
    assert factors <= HASHED
