"""Writes which environment variables the parts of an engine read: `python -m engine.variables [--mirror FOLDER]`, after `python -m engine.build`.

Names come from the installed wheels where these are Python, else from the source of a release, cloned from GitHub or read from a folder of
bare repositories. What each name means stands in variables.yaml beside the list, and a test asks for it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from disagg_serving.catalog.flags import FOLDER

from .build import PARSERS, Engine

FILE = FOLDER / "variables.json"
GIT = shutil.which("git") or "git"


class Source(NamedTuple):
    """A release of a repository: where names stand in it, and what is put before each."""

    repository: str
    tag: str
    paths: tuple[str, ...]
    names: tuple[tuple[str, str], ...]


SOURCES = {
    "NIXL": Source(
        "ai-dynamo/nixl",
        "v1.4.0",
        ("src/core", "src/infra", "src/utils", "src/plugins/libfabric", "src/plugins/telemetry", "src/plugins/tracing"),
        ((r'"(NIXL_(?!SRC_|ERR_|SUCCESS|IN_PROG)[A-Z0-9_]+[A-Z0-9])"', ""),),
    ),
    "NCCL": Source(
        "NVIDIA/nccl",
        "v2.29.7-1",
        ("src",),
        ((r'NCCL_PARAM\(\s*\w+,\s*"([A-Z0-9_]+)"', "NCCL_"), (r'"(NCCL_(?!LOG_)[A-Z0-9_]+)"', "")),
    ),
    "libfabric": Source(
        "ofiwg/libfabric",
        "v2.6.0",
        ("src", "prov/util", "prov/efa", "prov/shm"),
        (
            (r'fi_param_define\(\s*&efa_prov,\s*"(\w+)"', "FI_EFA_"),
            (r'fi_param_define\(\s*&smr_prov,\s*"(\w+)"', "FI_SHM_"),
            (r'fi_param_define\(\s*(?:NULL|&core_prov),\s*"(\w+)"', "FI_"),
        ),
    ),
    "aws-ofi-nccl": Source("aws/aws-ofi-nccl", "v1.21.1", ("include",), ((r'OFI_NCCL_PARAM\w*\(\s*[^,()]+,\s*\w+,\s*"(\w+)"', "OFI_NCCL_"),)),
    "hf_xet": Source("huggingface/xet-core", "v1.6.0", ("xet_runtime/src/config",), ((r'"(HF_XET_(?!EXAMPLE|TEST)[A-Z0-9_]+)"', ""),)),
}
GROUP_FIELD = re.compile(r"^\s*ref (\w+):", re.MULTILINE)
"""hf_xet makes names of the group's file and of the field."""
ALLOCATOR = re.compile(rb"PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF|PYTORCH_NO_(?:CUDA|HIP)_MEMORY_CACHING")
OF_VLLM = re.compile(r'^    "([A-Z0-9_]+)":', re.MULTILINE)
OF_HUB = re.compile(r'(?:environ(?:\.get)?[\[(]|getenv\(|_as_\w+\()\s*"((?:HF|HUGGING)[A-Z0-9_]+)"')


def of_vllm(engine: Engine) -> set[str]:
    """The keys of vLLM's own table."""
    text = (_packages(engine) / "vllm/envs.py").read_text(encoding="utf-8")
    return set(OF_VLLM.findall(text[text.index("environment_variables: dict") :]))


def of_hub(engine: Engine) -> set[str]:
    """What huggingface_hub reads."""
    return {name for file in (_packages(engine) / "huggingface_hub").rglob("*.py") for name in OF_HUB.findall(file.read_text(encoding="utf-8"))}


def of_allocator(engine: Engine) -> set[str]:
    """What PyTorch's allocator reads: texts of its libraries."""
    return {found.decode() for file in (_packages(engine) / "torch/lib").glob("libc10*.so") for found in ALLOCATOR.findall(file.read_bytes())}


def of_source(source: Source, mirror: Path | None) -> set[str]:
    """The names in the source of a release."""
    found: set[str] = set()
    for path, text in _texts(source, mirror):
        found |= {before + name.upper() for pattern, before in source.names for name in re.findall(pattern, text)}
        if "/config/groups/" in path:
            found |= {f"HF_XET_{Path(path).stem}_{name}".upper() for name in GROUP_FIELD.findall(text)}
    return found


def _texts(source: Source, mirror: Path | None) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        git = mirror / source.repository.replace("/", "+") / "repo" if mirror else Path(folder) / "repo"
        if mirror is None:
            address = f"https://github.com/{source.repository}"
            subprocess.run([GIT, "clone", "--quiet", "--bare", "--depth=1", f"--branch={source.tag}", address, str(git)], check=True)
        listed = _git(git, "ls-tree", "-r", "--name-only", source.tag, *source.paths).splitlines()
        for path in listed:
            if Path(path).suffix in {".c", ".cc", ".cpp", ".h", ".hpp", ".cu", ".rs"} and "test" not in Path(path).name:
                yield path, _git(git, "show", f"{source.tag}:{path}")


def _git(folder: Path, *args: str) -> str:
    return subprocess.run([GIT, f"--git-dir={folder}", *args], capture_output=True, check=True).stdout.decode("utf-8", "replace")


def _packages(engine: Engine) -> Path:
    (found,) = engine.folder.glob("lib/python*/site-packages")
    return found


def main(argv: Sequence[str]) -> int:
    """Write the list, a line a name's reader."""
    mirror = Path(argv[argv.index("--mirror") + 1]) if "--mirror" in argv else None
    newest = PARSERS[0]
    found = {f"vLLM {e.version}": (f"https://github.com/vllm-project/vllm/blob/v{e.version}/vllm/envs.py", of_vllm(e)) for e in PARSERS}
    found |= {
        "huggingface_hub": ("https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables", of_hub(newest)),
        "PyTorch's allocator": ("https://docs.pytorch.org/docs/stable/notes/cuda.html", of_allocator(newest)),
    }
    for name, source in SOURCES.items():
        found[name] = (f"https://github.com/{source.repository}/tree/{source.tag}/{source.paths[0]}", of_source(source, mirror))
    readers = {name: {"source": [address], "names": sorted(names)} for name, (address, names) in found.items()}
    head = {"checked": datetime.now(tz=UTC).date().isoformat(), "readers": readers}
    FILE.write_text(json.dumps(head, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {FILE.name}:", ", ".join(f"{name} {len(names)}" for name, (_, names) in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
