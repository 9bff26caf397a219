"""Writes the flags of each engine into the catalogue: `python -m engine.flags`, after an engine was added to versions.toml.

The fast suite and every `disagg check` read the files; `make engine` compares them with the engines.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from disagg_serving.catalog.flags import FOLDER

from .build import HERE, PARSERS, Engine


def dump(engine: Engine) -> dict[str, Any]:
    """What the engine's parser knows: {"flags": {flag: {kind, choices}}, "kvTransferConfig": [field]}."""
    done = subprocess.run([engine.python, HERE / "inside/flags.py"], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def text_of(engine: Engine, found: dict[str, Any], checked: str) -> str:
    """The catalogue's file."""
    head = {
        "engine": "vllm",
        "version": engine.version,
        "checked": checked,
        "source": [f"parser of vllm {engine.version} from PyPI, `python -m engine.flags`"],
    }
    lines = [yaml.safe_dump(head, sort_keys=False).rstrip(), f"kvTransferConfig: {_flow(found['kvTransferConfig'])}", "flags:"]
    lines += [f"  {flag}: {_flow(about)}" for flag, about in found["flags"].items()]
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=100_000).strip()


def main() -> int:
    """Write a file an engine."""
    today = datetime.now(tz=UTC).date().isoformat()
    for engine in PARSERS:
        file = Path(FOLDER / f"vllm-{engine.version}.yaml")
        file.write_text(text_of(engine, dump(engine), today), encoding="utf-8")
        print(f"wrote {file.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
