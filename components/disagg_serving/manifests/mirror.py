"""The Job that copies a model from Hugging Face to S3 once, before any GPU node is asked for."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import labels
from ..planning.drafts import draft_of
from ..planning.shapes import Served
from ..planning.startup import mirror_budget_seconds
from . import copy_weights
from .engine import TOKEN_KEY, TOKEN_SECRET, aws_region, from_secret
from .names import MIRROR_LABELS, managed, mirror_account, owned, pull_secrets

FILE_GIB = 40
"""Local disk of the Job: it holds one file at a time, and shards of checkpoints are 5 to 40 GB."""
RETRIES = 4
HUB_VARIABLES = frozenset({"HF_ENDPOINT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"})
HUB_PREFIXES = ("HF_HUB_", "HF_XET_")
"""Of the hub's client (huggingface_hub, hf_xet), which is the same in the Job as in the engines."""
IMAGE_SLACK_SECONDS = 600


def build_mirror_jobs(pairs: Sequence[Served]) -> list[dict[str, Any]]:
    """The Jobs of a model's pairs: one for each repository and revision, none where the bucket is filled by somebody else."""
    jobs = [build_mirror_job(served, copied) for served in pairs if served.spec.weights.mirror for copied in _copied(served)]
    return list({job["metadata"]["name"]: job for job in reversed(jobs)}.values())[::-1]


class Copied(NamedTuple):
    """What one Job copies: a repository at a revision to a folder of the bucket; the model itself, or its draft."""

    repository: str
    revision: str | None
    prefix: str
    uri: str | None


def _copied(served: Served) -> list[Copied]:
    draft = draft_of(served)
    drafts = [Copied(draft.repository, draft.revision, draft.s3_prefix, draft.uri)] if draft else []
    return [Copied(served.repository, served.spec.weights.revision, served.s3_prefix, served.weights_uri), *drafts]


def build_mirror_job(served: Served, copied: Copied) -> dict[str, Any]:
    """The Job. Its name changes with repository, revision and place, so another revision is another Job."""
    weights, script = served.spec.weights, inspect.getsource(copy_weights)
    s3 = weights.s3
    if s3 is None or copied.revision is None:
        raise ValueError("a mirror needs s3 and revision; rules weights-source and draft-model say so before")
    what = "\0".join([copied.repository, copied.revision, str(copied.uri)])
    name = f"{served.spec.name[:40]}-mirror-{hashlib.sha256(what.encode()).hexdigest()[:8]}"
    metadata = managed(name, served)
    seconds, memory = mirror_budget_seconds(served), f"{weights.mirror_memory_gib}Gi"
    env: list[dict[str, Any]] = [
        {"name": "REPOSITORY", "value": copied.repository},
        {"name": "REVISION", "value": copied.revision},
        {"name": "BUCKET", "value": s3.bucket},
        {"name": "PREFIX", "value": copied.prefix},
        {"name": "HF_HOME", "value": "/scratch/huggingface"},
        {"name": "TMPDIR", "value": "/scratch"},
    ]
    env += [{"name": n, "value": v} for n, v in (aws_region(served) | hub_variables(served)).items()]
    if weights.token_key:
        env.append(from_secret("HF_TOKEN", TOKEN_SECRET, TOKEN_KEY))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**metadata, "annotations": {labels.TIMEOUT_SECONDS: str(seconds + IMAGE_SLACK_SECONDS)}},
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": seconds,
            "template": {
                "metadata": {"labels": {**owned(served), **MIRROR_LABELS}, "annotations": {labels.DO_NOT_DISRUPT: "true"}},
                "spec": {
                    "serviceAccountName": mirror_account(served),
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    # each try is a new pod: one that was admitted before its Pod Identity association never gets credentials
                    "restartPolicy": "Never",
                    **pull_secrets(served),
                    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [
                        {
                            "name": "mirror",
                            # the engine's own image has all that it takes: Python, huggingface_hub and boto3
                            "image": served.image,
                            "command": ["python3", "-c", script],
                            "env": env,
                            "resources": {
                                "requests": {"cpu": f"{weights.mirror_cpu:g}", "memory": memory, labels.EPHEMERAL_STORAGE: f"{FILE_GIB}Gi"},
                                "limits": {"memory": memory},
                            },
                            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                        }
                    ],
                    "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": f"{FILE_GIB}Gi"}}],
                },
            },
        },
    }


def hub_variables(served: Served) -> dict[str, str]:
    """Variables of the model by which its engines find and ask a hub; whoever else downloads for it takes the same way."""
    return {n: v for n, v in sorted(served.spec.extra_env.items()) if n.upper() in HUB_VARIABLES or n.startswith(HUB_PREFIXES)}
