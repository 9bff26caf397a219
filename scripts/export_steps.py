"""The part of `make steps` that runs where NVIDIA's library is installed, and needs nothing of this project: step times as JSON.

    python export.py OUT_FILE < WANTED

WANTED is JSON: `axes`, `engine` and, by catalogue id, `config` (a name of the library's or one of its files), `gemm` and `forms`.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import tempfile
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

logging.disable(logging.WARNING)  # its loggers are loud on import
LIBRARY = "aisimulate" if find_spec("aisimulate_core") else "aiconfigurator-core"
SYSTEMS = {"h100": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm", "b300": "b300_sxm"}
core = import_module(LIBRARY.removesuffix("-core") + "_core")
EngineHandle = import_module(f"{core.__name__}.sdk").EngineHandle


def table(path: str, system: str, wanted: dict[str, Any], form: dict[str, Any], engine: str, axes: dict[str, list[int]]) -> dict[str, Any]:  # noqa: PLR0913, PLR0917
    """Milliseconds of one form of engine on one GPU; KV in bf16, which is what vLLM's `auto` takes."""
    tp, dp, ep = form["tp"], form["dp"], form["ep"]
    experts = {"moe_tp_size": 1 if ep else tp * dp, "moe_ep_size": tp * dp if ep else 1} if wanted["experts"] else {}
    e = EngineHandle.compile(
        path, system, "vllm", backend_version=engine, tp_size=tp, attention_dp_size=dp, gemm_quant_mode=wanted["gemm"],
        kvcache_quant_mode="bfloat16", fmha_quant_mode="bfloat16", **experts,
    )  # fmt: skip
    parts = {b: e.mixed_step_breakdown(axes["chunks"][0], b, axes["contexts"][0], 2) for b in axes["batches"]}
    return {
        "prefill": [e.predict_prefill_latency(1, n) for n in axes["lengths"]],
        "decode": [[e.decode_step_latency(b, c, 2) for c in axes["contexts"]] for b in axes["batches"]],
        "attention": [parts[b][3] for b in axes["batches"]],
        "shared": [[e.mixed_step_breakdown(c, b, axes["contexts"][0], 2)[1] for b in axes["mixed"]] for c in axes["chunks"]],
        "prompt": [[e.mixed_step_breakdown(c, 1, n, 2)[2] for n in axes["prompts"]] for c in axes["chunks"]],
        "sources": sorted({s for _, _, _, s in e.decode_step_per_op(8, 4096, 2)}),
    }


def main() -> None:
    """Write all tables, and why those that are missing are."""
    asked = json.load(sys.stdin)
    found: dict[str, Any] = {"library": f"{LIBRARY} {version(LIBRARY)}", "models": {}}
    for model, wanted in asked["models"].items():
        path, tables, missing = wanted["config"], {}, {}
        if path.endswith(".json"):
            source, path = Path(str(core.__file__)).parent / "model_configs" / path, tempfile.mkdtemp()
            shutil.copy(source, Path(path) / "config.json")
        for gpu, system in SYSTEMS.items():
            for form in wanted["forms"]:
                key = f"{gpu}/{form['name']}"
                try:
                    tables[key] = table(path, system, wanted, form, asked["engine"], asked["axes"])
                except Exception as problem:  # noqa: BLE001 (a form without data is a fact to record)
                    missing[key] = f"{type(problem).__name__}: {problem}"[:160]
        found["models"][model] = {"tables": tables, "missing": missing}
        print(f"{model}: {len(tables)} tables, {len(missing)} without data", flush=True)
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")


main()
