"""What NVIDIA's event simulator says about arrivals by chance: runs where `aisimulate` is installed, and needs nothing of this project.

usage: oracle.py CASES_FILE > RESULTS_FILE     in the environment that `make steps` leaves in build/steps/venv

CASES_FILE is JSON, a list of cases as in tests/data/sizing-oracle.json. Each is simulated with Poisson arrivals of fixed lengths.
"""

from __future__ import annotations

import json
import logging
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

logging.disable(logging.WARNING)  # its loggers are loud on import
simulator, prediction = import_module("aisimulate"), import_module("aisimulate.predict")

ENGINE = "0.24.0"  # the vLLM whose kernels were measured


def predict(case: dict[str, Any]) -> dict[str, float]:
    """Mean and percentile of the first token and of further ones, in ms."""
    spread = case["tp"] * case["dp"]
    experts = {"moe_tensor": 1 if case["ep"] else spread, "moe_expert": spread if case["ep"] else 1} if case["experts"] else {}
    worker = {
        "parallelism": {"replicas": case["engines"], "tensor": case["tp"], "attention_data": case["dp"], **experts},
        "scheduler": {"max_batched_tokens": case["budget"], "max_sequences": 1024},
        "kv_cache": {"prefix_caching": False},
        "timing": {"gemm_quant_mode": case["gemm"], "kvcache_quant_mode": "bfloat16", "fmha_quant_mode": "bfloat16"},
    }
    config = simulator.CorePredictionConfig.model_validate(
        {
            "traffic": {
                "source": {"type": "synthetic", "input_tokens": case["prompt"], "output_tokens": case["answer"]},
                "load": {"type": "poisson", "requests_per_second": case["rate"], "seed": 1},
                "stop": {"requests": case["requests"]},
            },
            "engine": {
                "mode": "aggregated",
                "model": case["config"],
                "hardware": case["system"],
                "backend": "vllm",
                "backend_version": ENGINE,
                "workers": {"aggregated": worker},
            },
        }
    )
    found = prediction.run_prediction(config, stack="engine", runner_factory=simulator.EngineReplayRunnerFactory()).summary
    return {name: round(float(found[key]), 2) for name, key in KEYS.items()}


KEYS = {"ttft": "mean_ttft_ms", "ttft_p90": "p90_ttft_ms", "tpot": "mean_tpot_ms"}


def main() -> None:
    """Simulate all cases."""
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cases"]
    done = [{**case, "found": predict(case)} for case in cases]
    head = {
        "library": f"aisimulate {version('aisimulate')}",
        "engine": f"vLLM {ENGINE}",
        "command": "scripts/oracle.py tests/data/sizing-oracle.json",
    }
    json.dump({**head, "cases": done}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
