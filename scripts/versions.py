"""Which versions belong together: of each kept release, and of this revision, read from where they are pinned."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from disagg_serving import pins
from disagg_serving.catalog import load_catalog
from packaging.version import Version

from scripts.reference import table

ROOT = Path(__file__).resolve().parent.parent
RELEASED = ROOT / "tests/upgrade/released"
PAGE = ROOT / "docs/upgrade/versions.md"
FILE = "versions.json"
"""What a kept release says of itself, in its folder."""
PACKAGES = ("pulumi", "pulumi-aws", "pulumi-eks", "pulumi-kubernetes", "pydantic")
HEADER = """# Versions that belong together

What a release was tested with and installs, generated from its pins (`make generate`). `pip install` of the wheel takes newer versions within
the ranges of `pyproject.toml`; `requirements.txt` of the release's tag has exactly these.
"""


def pinned(file: Path) -> dict[str, str]:
    """Packages of a requirements file with the version of each."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return {m[1]: m[2] for line in lines if (m := re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s#;]+)", line))}


def current(root: Path = ROOT) -> dict[str, str]:
    """The versions of this revision, by what they are of."""
    catalog, packages = load_catalog(), pinned(root / "requirements.txt")
    engine, router = catalog.engines[pins.DEFAULT_ENGINE], catalog.routers[pins.DEFAULT_ROUTER]
    python = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    return {
        "Python": python,
        **{name: packages[name] for name in PACKAGES},
        "Kubernetes": pins.KUBERNETES.version,
        "LeaderWorkerSet chart": pins.LWS_CHART.version,
        "vLLM": engine.version,
        "NIXL": engine.nixl or "",
        "llm-d router": router.version.removeprefix("v"),
        "KEDA chart": pins.KEDA_CHART.version,
        "DCGM exporter chart": pins.DCGM_CHART.version,
    }


def releases(released: Path = RELEASED) -> dict[str, Mapping[str, str]]:
    """The versions of each kept release, oldest first."""
    files = sorted(released.glob(f"*/{FILE}"), key=lambda f: Version(f.parent.name))
    return {f.parent.name: json.loads(f.read_text(encoding="utf-8")) for f in files}


def page() -> str:
    """docs/upgrade/versions.md: a column a release, newest first."""
    columns = {"this revision": current(), **dict(reversed(releases().items()))}
    rows = list(dict.fromkeys(part for versions in columns.values() for part in versions))
    lines = table(["", *columns], [[part, *(versions.get(part, "") for versions in columns.values())] for part in rows])
    return "\n".join([HEADER, *lines]) + "\n"
