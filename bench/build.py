"""Builds the real engine and control plane from Go modules, one small module a tool; binaries are kept between runs.

usage: python -m bench.build [--core | TOOL ...]     --core leaves out what only tests outside the core of the live suite need
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = Path(os.environ.get("DISAGG_BENCH_DIR", ROOT / ".bench"))
"""Everything that is built; git-ignored, and may be shared between checkouts through DISAGG_BENCH_DIR."""


UNREACHABLE = re.compile(r"dial tcp|no such host|proxyconnect|connection re(?:fused|set)|i/o timeout|TLS handshake timeout|50[234] |403 Forbidden")
"""How Go says that a module cannot be had from here."""


@dataclass(frozen=True)
class Tool:
    """A program to build: a package of a module, or a folder of ours that uses the module."""

    name: str
    module: str
    version: str
    package: str = ""
    source: str = ""
    ldflags: str = ""
    staging: str = ""
    with_modules: tuple[str, ...] = field(default_factory=tuple)
    tags: str = field(default="", repr=False)
    core: bool = field(default=True, repr=False)
    """Whether tests of the core need it."""

    @property
    def binary(self) -> Path:
        """Where the program is put."""
        return OUT / "bin" / self.name

    @property
    def key(self) -> str:
        """Changes when the program must be built again."""
        sources = sorted((HERE / self.source).rglob("*")) if self.source else []
        content = b"".join(p.read_bytes() for p in sources if p.is_file())
        return sha256(repr(self).encode() + self.tags.encode() + content).hexdigest()

    @property
    def is_built(self) -> bool:
        """Whether the program is there and up to date."""
        stamp = self.binary.with_suffix(".key")
        return self.binary.exists() and stamp.exists() and stamp.read_text() == self.key


def tools() -> list[Tool]:
    """All programs, in build order: each reuses what earlier ones compiled."""
    data: dict[str, dict[str, Any]] = tomllib.loads((HERE / "versions.toml").read_text(encoding="utf-8"))
    found = []
    for name, own in data.items():
        if "crds" in own:
            continue
        entry = {**data[own["same-module-as"]], **own} if "same-module-as" in own else own
        found.append(
            Tool(
                name=name,
                module=entry["module"],
                version=entry["version"],
                package=entry.get("package", ""),
                source=entry.get("source", ""),
                ldflags=entry.get("ldflags", ""),
                staging=entry.get("staging-version", ""),
                with_modules=tuple(entry.get("with", ())),
                tags=entry.get("tags", ""),
                core=own.get("core", True),
            )
        )
    return found


def go() -> str | None:
    """The Go command, or None."""
    return shutil.which("go")


def module_dir(module: str, version: str) -> Path:
    """The folder of a module in the module cache, downloaded if needed: CRDs and charts are read from there."""
    return Path(json.loads(_go("mod", "download", "-json", f"{module}@{version}", cwd=OUT))["Dir"])


def crds_of(name: str) -> Path:
    """The folder of CRDs of a module that is read for them only. Raises RuntimeError where the module cannot be had."""
    entry: dict[str, str] = tomllib.loads((HERE / "versions.toml").read_text(encoding="utf-8"))[name]
    return module_dir(entry["module"], entry["version"]) / entry["crds"]


def build(tool: Tool) -> None:
    """Build one program. Raises RuntimeError with the end of Go's output."""
    folder = HERE / tool.source if tool.source else own_module(tool)
    tool.binary.parent.mkdir(parents=True, exist_ok=True)
    target = "." if tool.source else tool.package
    flags = ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {tool.ldflags}", *(["-tags", tool.tags] if tool.tags else [])]
    _go("build", *flags, "-o", str(tool.binary), target, cwd=folder)
    tool.binary.with_suffix(".key").write_text(tool.key)


def own_module(tool: Tool) -> Path:
    """A module of its own that requires the tool's module; same versions, same module."""
    folder = OUT / "modules" / re.sub(r"[^a-z0-9]+", "-", tool.module.lower())
    wanted = [f"{tool.module}@{tool.version}", *tool.with_modules]
    stamp = folder / "required"
    if stamp.exists() and stamp.read_text() == repr(wanted):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _go("mod", "init", f"bench/{folder.name}", cwd=folder)
    if tool.staging:
        own = Path(json.loads(_go("mod", "download", "-json", wanted[0], cwd=folder))["GoMod"]).read_text(encoding="utf-8")
        staged = re.findall(r"(k8s\.io/[\w-]+) => \./staging", own)
        _go("mod", "edit", *(f"-replace={m}={m}@{tool.staging}" for m in staged), cwd=folder)
    _go("get", *wanted, cwd=folder)
    stamp.write_text(repr(wanted))
    return folder


def _go(*args: str, cwd: Path) -> str:
    cwd.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
    done = subprocess.run(["go", *args], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise RuntimeError(f"go {args[0]} failed: " + " | ".join(lines[-4:]))
    return done.stdout


def main(argv: list[str]) -> int:
    """Build what is missing, with a line a step.

    Where Go or its modules cannot be had it says so, and the live tests skip with that reason; a program that does not compile is exit code 1.
    """
    if go() is None:
        print("Go is not installed: the live suite is skipped (Go 1.26 or newer builds it)")
        return 0
    known = [t.name for t in tools()]
    named = [t.name for t in tools() if t.core] if argv == ["--core"] else argv or known
    if unknown := [name for name in named if name not in known]:
        print(f"unknown program {', '.join(unknown)} (allowed: {', '.join(known)}, or --core alone)", file=sys.stderr)
        return 1
    wanted = [t for t in tools() if t.name in named]
    begin = time.monotonic()
    for i, tool in enumerate(wanted, 1):
        start, step = time.monotonic(), f"[{i} of {len(wanted)}] {tool.name} {tool.version}"
        if tool.is_built:
            print(f"{step}: there", flush=True)
            continue
        print(f"{step}: building ...", flush=True)
        try:
            build(tool)
        except RuntimeError as error:
            if UNREACHABLE.search(str(error)):
                print(f"{step}: its module cannot be downloaded here, so the live suite is skipped: {error}")
                return 0
            print(f"{step}: {error}", file=sys.stderr)
            return 1
        print(f"{step}: {time.monotonic() - start:.0f} s", flush=True)
    print(f"build: {time.monotonic() - begin:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
