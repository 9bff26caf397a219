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

from disagg_serving.catalog.flags import FOLDER

from .build import HERE, PARSERS, Engine


def dump(engine: Engine) -> dict[str, Any]:
    """What the engine's parser knows: {"flags": {flag: {kind, choices, none, of, off, default}}, "short": {short spelling: flag}}."""
    done = subprocess.run([engine.python, HERE / "inside/flags.py"], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def text_of(engine: Engine, found: dict[str, Any], checked: str) -> str:
    """The catalogue's file, a line a flag."""
    head = {"engine": "vllm", "version": engine.version, "checked": checked, "source": [f"the parser of vllm {engine.version} from PyPI"]}
    lines = [f'  "{key}": {json.dumps(value)},' for key, value in head.items()]
    parts = {part: ",\n".join(f'    "{name}": {json.dumps(about)}' for name, about in found[part].items()) for part in found}
    return "{\n" + "\n".join(lines) + "\n" + ",\n".join(f'  "{part}": {{\n{text}\n  }}' for part, text in parts.items()) + "\n}\n"


def main() -> int:
    """Write a file an engine."""
    today = datetime.now(tz=UTC).date().isoformat()
    for engine in PARSERS:
        file = Path(FOLDER / f"vllm-{engine.version}.json")
        file.write_text(text_of(engine, dump(engine), today), encoding="utf-8")
        print(f"wrote {file.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
