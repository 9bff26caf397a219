"""How long an engine may take from container start to its first answer."""

from __future__ import annotations

import math

from .drafts import checkpoint_gb
from .shapes import Served

BASE_SECONDS = 600
"""Image pull, CUDA graphs and compilation; vLLM's own default for the engine is 600 s: VLLM_ENGINE_READY_TIMEOUT_S of
https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/envs.py."""
DOWNLOAD_GB_PER_SECOND = 0.15
"""Slow end of a Hugging Face download: 680 GB in 76 minutes, where AWS allows 30 to 60:
https://github.com/awslabs/awsome-distributed-ai/blob/95b939cd/3.test_cases/pytorch/vllm/dsv3-uccl-nixl/README.md."""
STREAM_GB_PER_SECOND = 0.5
"""Slow end of streaming from S3: a third of what Modelplane reports of the same streamer from a shared volume, 509 GiB in 6 minutes:
https://github.com/modelplaneai/modelplane/blob/v0.3.1/docs/manifests/examples/kimi-k2/model-deployment.yaml."""
SAFETY = 1.5


def load_seconds(served: Served) -> float:
    """Seconds that a pod waits for its weights, at the slow end of what is reported for their source."""
    return checkpoint_gb(served) / (STREAM_GB_PER_SECOND if served.weights_uri else DOWNLOAD_GB_PER_SECOND)


def startup_budget_seconds(served: Served) -> int:
    """Seconds after which a start counts as failed: 1.5 x (600 s + loading), in whole minutes."""
    return math.ceil(SAFETY * (BASE_SECONDS + load_seconds(served)) / 60) * 60


def ready_wait_seconds(served: Served) -> int | None:
    """Seconds that a deployment waits until a pair is available, or None where it does not.

    Of a generation it always waits, because requests are sent to it next: one that does not start must not take the place of one that does.
    """
    asked = served.spec.wait_for_ready_seconds
    return startup_budget_seconds(served) if asked is None and served.live and served.spec.generation else asked


def mirror_budget_seconds(served: Served) -> int:
    """Seconds after which a copy to S3 counts as failed: 1.5 x (600 s + down + up, one after the other), in whole minutes."""
    seconds = checkpoint_gb(served) / DOWNLOAD_GB_PER_SECOND + checkpoint_gb(served) / STREAM_GB_PER_SECOND
    return math.ceil(SAFETY * (BASE_SECONDS + seconds) / 60) * 60
