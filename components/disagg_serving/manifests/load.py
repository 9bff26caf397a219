"""A Job that sends load: vLLM's own generator in the engine's image, which the cluster has already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import labels
from ..planning.shapes import API_PORT, Group, Served
from ..spec import EnvironmentSpec
from .engine import API_KEY_KEY, API_KEY_SECRET, TOKEN_KEY, TOKEN_SECRET, from_secret
from .mirror import hub_variables
from .names import LOAD_LABELS, managed, owned, picker_name, pull_secrets, service_name
from .network_policy import PROXY_PORT, build_load_policies

CPU, MEMORY_GIB, SCRATCH_GIB = 4, 8, 2
RESULTS, RESULT_FILE = "/results", "result.json"
GENERATOR, RESULT = "generator", "result"
"""Containers: the first sends and writes a file, the second prints it, so that its log is the result and nothing else."""
PERCENTILES = (50, 90, 99)
KEPT_SECONDS = 24 * 3600
PATH = "/v1/completions"
"""Prompts are random tokens, which a chat template would add to."""


@dataclass(frozen=True)
class Run:
    """One load run: lengths in tokens, so many requests, either arriving at a rate a second or so many at a time.

    The seed chooses the prompts: one that was used before finds its prompts in the prefix cache.
    """

    kind: str
    input_tokens: int
    output_tokens: int
    requests: int
    seed: int
    rate: float | None = None
    concurrency: int | None = None


def build_load(run: Run, served: Served, groups: Sequence[Group], spec: EnvironmentSpec, seconds: int) -> list[dict[str, Any]]:
    """The policies that let the Job through, and the Job."""
    return [*build_load_policies(served, spec), build_load_job(run, served, groups, seconds)]


def build_load_job(run: Run, served: Served, groups: Sequence[Group], seconds: int) -> dict[str, Any]:
    """The Job of a run; it ends after so many seconds at the latest, and is kept for a day."""
    hub = hub_variables(served)
    env: list[dict[str, Any]] = [{"name": n, "value": v} for n, v in {"HF_HOME": RESULTS, "USER": "vllm", "VLLM_NO_USAGE_STATS": "1", **hub}.items()]
    if served.spec.weights.token_key:
        env.append(from_secret("HF_TOKEN", TOKEN_SECRET, TOKEN_KEY))
    if served.spec.gateway.api_key_secret:
        env.append(from_secret("OPENAI_API_KEY", API_KEY_SECRET, API_KEY_KEY))
    devices = {"cpu": str(CPU), "memory": f"{MEMORY_GIB}Gi", labels.EPHEMERAL_STORAGE: f"{SCRATCH_GIB}Gi"}
    generator = {
        "name": GENERATOR,
        **_common(served),
        "command": ["vllm", "bench", "serve"],
        "args": command_args(run, served, groups),
        "env": env,
        "resources": {"requests": devices, "limits": {"memory": f"{MEMORY_GIB}Gi"}},
    }
    small = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}}
    printer = {"name": RESULT, **_common(served), "command": ["cat", f"{RESULTS}/{RESULT_FILE}"], "resources": small}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": managed(job_name(run, served), served),
        "spec": {
            # a second try would find its prompts cached
            "backoffLimit": 0,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {
                "metadata": {"labels": {**owned(served), **LOAD_LABELS}, "annotations": {labels.DO_NOT_DISRUPT: "true"}},
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "restartPolicy": "Never",
                    **pull_secrets(served),
                    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                    "initContainers": [generator],
                    "containers": [printer],
                    "volumes": [{"name": "results", "emptyDir": {"sizeLimit": f"{SCRATCH_GIB}Gi"}}],
                },
            },
        },
    }


def _common(served: Served) -> dict[str, Any]:
    """What both containers have."""
    return {
        "image": served.image,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "results", "mountPath": RESULTS}],
    }


def job_name(run: Run, served: Served) -> str:
    """Name of a run's Job."""
    return f"{served.spec.name[:30]}-load-{run.kind}-{run.seed}"


def command_args(run: Run, served: Served, groups: Sequence[Group]) -> list[str]:
    """Arguments after `vllm bench serve`; flags of 0.27.1 and 0.33.0. The tokenizer comes from the repository, which S3 cannot give it."""
    namespace = served.spec.kubernetes_namespace
    routed = served.spec.gateway.enabled
    service, port = (picker_name(served), PROXY_PORT) if routed else (service_name(groups[-1]), API_PORT)
    pace = [f"--request-rate={run.rate:g}"] if run.rate else [f"--max-concurrency={run.concurrency}"]
    return [
        "--backend=openai",
        f"--base-url=http://{service}.{namespace}.svc:{port}",
        f"--endpoint={PATH}",
        f"--model={served.repository}",
        f"--served-model-name={served.spec.served_model_name or served.spec.name}",
        "--dataset-name=random",
        f"--random-input-len={run.input_tokens}",
        f"--random-output-len={run.output_tokens}",
        "--ignore-eos",
        "--temperature=0",
        f"--num-prompts={run.requests}",
        f"--seed={run.seed}",
        *pace,
        "--percentile-metrics=ttft,tpot,itl",
        f"--metric-percentiles={','.join(str(p) for p in PERCENTILES)}",
        "--save-result",
        f"--result-dir={RESULTS}",
        f"--result-filename={RESULT_FILE}",
        "--disable-tqdm",
    ]
