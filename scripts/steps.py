"""Makes the step times of the catalogue from NVIDIA's measured kernel data: `make steps`.

usage: steps.py [--from FILE]

It installs the pinned library in a scratch environment under build/ (1.3 GB), asks it for the times of every model, GPU and form of engine, refuses
what the gates of forecast/speed/gates.py refuse, packs the rest into catalog/steps/, and stores the error against the measured runs of
tests/data/sizing-rows.csv. FILE is what an earlier run got from the library. Linux on x86-64 only, as the library's wheels.
"""

from __future__ import annotations

import argparse
import json
import lzma
import subprocess
import sys
import venv
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a script's own folder is on the path, and not the repository

from disagg_serving.catalog import load_catalog  # noqa: E402
from disagg_serving.catalog.step_times import FOLDER, Form, form_of, pack, step_data, step_tables, unpack  # noqa: E402
from disagg_serving.forecast.sizing.units import times_of  # noqa: E402
from disagg_serving.forecast.speed.gates import refusals  # noqa: E402

from scripts.sizing_cases import GPUS, compare, errors_of, read_rows  # noqa: E402

LIBRARY = "aisimulate==0.13.0.dev202610270000000085"  # 2026-10-27, https://pypi.org/project/aisimulate/
NEEDS = (
    "numpy==2.4.6",
    "pandas==3.1.1",
    "pyarrow==26.0.1",
    "scipy==1.17.1",
    "pyyaml==6.0.4",
    "packaging==26.4",
    "pydantic",
    "tqdm",
    "jinja2",
    "psutil",
)
"""What the parts of the library need that are used here; it asks for a gigabyte more."""
ENGINE = "0.24.0"  # the vLLM whose kernels were measured
SCRATCH, TARGET = ROOT / "build/steps", ROOT / "components/disagg_serving/catalog/steps.yaml"
SOURCE = "https://pypi.org/project/aisimulate/0.13.0.dev202610270000000085/"
NOTICE = (
    "Derived from the measured kernel data of NVIDIA AISimulate (aisimulate_core/systems/data of the wheel), Copyright (c) 2025-2026 NVIDIA "
    "CORPORATION & AFFILIATES, Apache-2.0, https://www.apache.org/licenses/LICENSE-2.0. Changed: interpolated to the points of `axes` and rounded."
)
_DENSE = ("tp1", "tp2", "tp4", "tp8")
_EXPERTS = (*_DENSE, "tp2ep", "tp4ep", "tp8ep", "tp1dp2ep", "tp1dp4ep", "tp1dp8ep", "tp2dp2ep", "tp2dp4ep", "tp4dp2ep")
_LARGE = ("tp4", "tp8", "tp4ep", "tp8ep", "tp1dp8ep", "tp2dp4ep", "tp4dp2ep")
MODELS: dict[str, tuple[str, str | None, tuple[str, ...]]] = {
    "deepseek-r1": ("deepseek-ai/DeepSeek-R1", None, _LARGE),
    "deepseek-v3": ("deepseek-ai/DeepSeek-V3", None, _LARGE),
    "deepseek-v3.2": ("deepseek-ai/DeepSeek-V3.2", None, _LARGE),
    "glm-5-fp8": ("zai-org/GLM-5-FP8", None, _LARGE),
    "glm-5.2-fp8": ("zai-org/GLM-5.2-FP8", None, _LARGE),
    "gpt-oss-120b": ("openai/gpt-oss-120b", None, _EXPERTS),
    "kimi-k2-instruct": ("moonshotai--Kimi-K2-Instruct_config.json", None, _LARGE),
    "kimi-k2.5": ("moonshotai/Kimi-K2.5", None, _LARGE),
    "llama-3.1-8b-instruct": ("meta-llama/Meta-Llama-3.1-8B", None, _DENSE),
    "llama-3.3-70b-instruct": ("meta-llama/Meta-Llama-3.1-70B", None, _DENSE),
    "llama-3.3-70b-instruct-fp8": ("meta-llama/Meta-Llama-3.1-70B", "fp8", _DENSE),
    "minimax-m2.5": ("MiniMaxAI/MiniMax-M2.5", None, _EXPERTS),
    "qwen3-235b-a22b-instruct": ("Qwen/Qwen3-235B-A22B", None, _EXPERTS),
    "qwen3-235b-a22b-instruct-fp8": ("Qwen/Qwen3-235B-A22B-FP8", None, _EXPERTS),
    "qwen3-32b": ("Qwen/Qwen3-32B", None, _DENSE),
}
"""Catalogue id: the configuration that the library carries (a file: not on its list of names), matrix products where the checkpoint does not tell,
and forms."""
AXES: dict[str, list[int]] = {
    "lengths": [
        32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536, 98304, 131072,
    ],
    "batches": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024],
    "contexts": [128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072],
    "chunks": [128, 256, 512, 1024, 2048, 4096, 8192, 16384],
    "mixed": [1, 4, 16, 32, 64, 128, 256, 512, 1024],
    "prompts": [256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072],
}  # fmt: skip


def wanted() -> dict[str, Any]:
    """What the library is asked for."""
    models = load_catalog().models
    return {
        "axes": AXES,
        "engine": ENGINE,
        "models": {
            model: {"config": config, "gemm": gemm, "experts": models[model].moe is not None, "forms": [_form(form_of(key)) for key in forms]}
            for model, (config, gemm, forms) in MODELS.items()
        },
    }


def _form(form: Form) -> dict[str, Any]:
    return {"name": form.key, "tp": form.tensor_parallel, "dp": form.data_parallel, "ep": form.expert_parallel}


def scratch() -> Path:
    """The Python of an environment that has the library."""
    python = SCRATCH / "venv/bin/python"
    if not python.is_file():
        venv.create(SCRATCH / "venv", with_pip=True)
        for packages in (("--no-deps", LIBRARY), NEEDS):
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def export() -> Path:
    """What the library says, as a file."""
    python, out = scratch(), SCRATCH / "out.json"
    subprocess.run([python, ROOT / "scripts/export_steps.py", out], input=json.dumps(wanted()), text=True, check=True)
    return out


def store(found: Mapping[str, Any]) -> None:
    """Gate and pack the tables, and write what is known of them."""
    catalog, entries = load_catalog(), {}
    nodes = {gpu: catalog.instances[name] for gpu, name in GPUS.items()}
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob("*.json.xz"):
        file.unlink()
    size = 0
    for model, (config, _, _) in MODELS.items():
        raw, missing = found["models"][model]["tables"], found["models"][model]["missing"]
        packed = {key: pack(table) for key, table in raw.items()}
        tables = {_key(key): unpack(table) for key, table in packed.items()}
        refused = {f"{gpu}/{form.key}": why for (gpu, form), why in refusals(tables, AXES, catalog.models[model], nodes).items()}
        kept = {key: table for key, table in packed.items() if key not in refused}
        data = lzma.compress(json.dumps(kept, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME)
        (FOLDER / f"{model}.json.xz").write_bytes(data)
        size += len(data)
        entries[model] = {"config": config, "tables": len(kept)} | {name: part for name, part in (("refused", refused), ("missing", missing)) if part}
        print(f"{model}: {len(kept)} tables, {len(refused)} refused, {len(missing)} without data, {len(data):,} bytes")
    head = {"library": found["library"], "engine": f"vLLM {ENGINE}", "made": datetime.now(UTC).date().isoformat(), "source": SOURCE, "notice": NOTICE}
    write({**head, "axes": AXES, "models": entries, "errors": {}})
    for cached in (step_data, step_tables, times_of):
        cached.cache_clear()
    write({**head, "axes": AXES, "models": entries, "errors": errors_of(compare(row) for row in read_rows())})
    print(f"{size:,} bytes in {len(entries)} files")


def _key(text: str) -> tuple[str, Form]:
    gpu, _, form = text.partition("/")
    return gpu, form_of(form)


def write(data: Mapping[str, Any]) -> None:
    """The file beside the tables."""
    import yaml  # noqa: PLC0415 (only here)

    head = "# Step times of engines: what the packed tables of steps/ are, which the gates refused, and how far they are from measured runs.\n"
    head += "# Written by `make steps`. errors: measured by forecast time per token, tenth percentile, median, ninetieth, and the rows.\n"
    TARGET.write_text(head + yaml.safe_dump(dict(data), sort_keys=False, default_flow_style=None, width=140), encoding="utf-8")


def main() -> None:
    """Ask the library, or take what it said before."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="file", type=Path, help="what an earlier run got from the library")
    file = parser.parse_args().file or export()
    store(json.loads(file.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
