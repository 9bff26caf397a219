"""Rules about draft models and other second repositories: where their files come from, and whether they fit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ...errors import Level
from ...phrases import say
from ...planning.drafts import draft_of
from ...planning.extras import setting_of, written_arguments
from ...planning.shapes import Served
from ..documents import NIXL_CONNECTOR, VLLM
from ..registry import Fault, Stage, Subject, remove, rule, use
from .engine_arguments import OTHER_DRAFTS
from .weights import COMMIT, HUB_NAME

REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
SECOND = frozenset({"--tokenizer", "--hf-config-path", "--generation-config", "--lora-modules", "--default-mm-loras"})
"""Flags whose values vLLM looks for on Hugging Face."""


@rule("draft-model", Level.ERROR, Stage.FORM, f"{VLLM}vllm/config/speculative.py", firm=True)
def draft_model(s: Subject) -> Iterator[Fault]:
    """A draft model belongs to a method that has one, its files are where the engines look, and its size is known to the forecast."""
    for served in s.served:
        said, draft, path = served.spec.speculative, draft_of(served), f"{served.path}.speculative"
        if said is None:
            continue
        if draft is None:
            for key, value in (("revision", said.revision), ("checkpointGB", said.checkpoint_gb)):
                if value is not None:
                    idle = say("has no effect without {speculative.model}")
                    yield Fault(f"{path}.{key}", idle, value, "without it", level=Level.WARNING, ways=[remove(f"{path}.{key}")])
            continue
        if said.method not in OTHER_DRAFTS:
            message = f"has no effect: {said.method} drafts without another model"
            yield Fault(f"{path}.model", message, said.model, "without it", level=Level.WARNING, ways=[remove(f"{path}.model")])
            continue
        if draft.checkpoint_gb is None:
            message = "is not in the catalogue, so memory and disk do not count it"
            fix = say("set {speculative.checkpointGB} to the size of its files")
            yield Fault(f"{path}.model", message, said.model, "a catalogue id, or its size", fix, Level.WARNING)
        yield from _files(served, path)


def _files(served: Served, path: str) -> Iterator[Fault]:
    weights, draft = served.spec.weights, draft_of(served)
    if draft is None:
        return
    if weights.mirror and draft.revision is None:
        yield Fault(f"{path}.revision", "is required with mirror, which copies the draft model, too", None, "a commit", "add it")
    elif weights.mirror and draft.revision and not COMMIT.fullmatch(draft.revision):
        message = "is no commit, so another copy would be made of what it names later"
        yield Fault(f"{path}.revision", message, draft.revision, "a commit, 7 to 40 hexadecimal digits", "name the commit")
    elif weights.s3 is None and draft.revision is None:
        message = f"is not set, so {draft.repository} floats"
        yield Fault(f"{path}.revision", message, None, "a commit", "set it to a commit of the repository", Level.INFO)
    if weights.mirror and not HUB_NAME.fullmatch(draft.repository):
        yield Fault(f"{path}.model", "is no repository of a hub, which mirror copies", draft.repository, "owner/name", "name its repository")
    elif weights.s3 and draft.repository.startswith(("/", "s3://")):
        yield Fault(f"{path}.model", "is looked for in the model's bucket", draft.repository, "owner/name", "name its folder in the bucket")


@rule("draft-heads", Level.ERROR, Stage.FORM, f"{NIXL_CONNECTOR}base_worker.py (_head_sharded_draft_regions)", reads=("speculative",))
def draft_heads(s: Subject) -> Iterator[Fault]:
    """Beside a model with latent attention, decode has at least the tensorParallel of prefill: NIXL cannot merge the draft's KV heads."""
    for served in s.served:
        prefill, decode = served.spec.prefill, served.spec.decode
        drafts = draft_of(served) is not None and served.spec.speculative is not None and served.spec.speculative.method in OTHER_DRAFTS
        if not drafts or served.facts.mla is None or prefill is None or decode is None:
            continue
        p, d, path = prefill.tensor_parallel, decode.tensor_parallel, f"{served.path}.decode.tensorParallel"
        pushed = served.spec.connector.mode == "push"
        if d < p or (pushed and d != p):
            message = f"is {'not' if pushed else 'less than'} prefill's {p}, and the draft model's KV is cut by heads beside latent attention"
            yield Fault(path, message, d, f"{p}" if pushed else f"{p} or more", ways=[use(path, p), use(f"{served.path}.prefill.tensorParallel", d)])


@rule(
    "offline-repository", Level.ERROR, Stage.FORM, "https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables#hfhuboffline"
)
def offline_repository(s: Subject) -> Iterator[Fault]:
    """With weights from S3 the engines are offline, so no flag names a second repository on Hugging Face."""
    for served in s.served:
        for place, flag in written_arguments(served.spec) if served.weights_uri else ():
            named = next((name for name in _named(flag) if REPOSITORY.fullmatch(name)), None)
            if setting_of(flag) in SECOND and named:
                path = f"{served.path}.{place}"
                message = f"names {named}, which is looked for on Hugging Face, and engines that stream from S3 are offline"
                fix = "put its files beside the model's in the bucket, or into the image, and name that path"
                yield Fault(path, message, flag, "a path in the pod, or s3://...", fix, ways=[remove(path)])


def _named(flag: str) -> list[str]:
    """What may be names of repositories in a flag's value: all of it, behind name=, or under the key path of its JSON."""
    value = flag.partition("=")[2]
    try:
        read = json.loads(value)
    except ValueError:
        return [value, value.partition("=")[2]]
    entries = read if isinstance(read, list) else [read]
    return [str(entry.get("path", "")) for entry in entries if isinstance(entry, dict)]
