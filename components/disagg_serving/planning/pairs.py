"""The pairs of a model: the one that serves, a candidate next to it, and the identity that keeps their pods apart.

A prefill and a decode pod work together only if vLLM was started alike on both: NIXL compares a hash at their first contact and fails
the request otherwise. Everything that has to be alike goes into the identity, which the pods carry as a label and by which Services and
routers select.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from .. import labels
from ..errors import Finding
from ..place import Place
from ..spec import CandidateSpec, ModelSpec
from ..spec.base import Spec
from ..spec.places import pair_of
from .command_line import OF_MODEL
from .paired import shared_settings
from .shapes import Group, block_size_of

LOGS_ONLY = frozenset({"--enable-log-requests", "--disable-log-stats", "--disable-uvicorn-access-log", "--uvicorn-log-level", "--max-log-len"})
"""Flags that change what is logged and nothing else. What another flag does to KV or to a prompt's tokens is not known here, so it counts."""
LOG_VARIABLES = ("VLLM_LOGGING_", "NCCL_DEBUG")
_SWITCHES = frozenset({"generation", "activate", "weights"})
_OF_THE_WEIGHTS = frozenset({("weights",), ("weights", "s3"), ("weights", "revision"), ("weights", "s3", "prefix")})


def pairs_of(model: ModelSpec) -> list[tuple[ModelSpec, bool]]:
    """The pairs that run, the one that serves first, each with whether it stands under `candidate`."""
    if model.candidate is None:
        return [(model, False)]
    following = with_candidate(model, model.candidate)
    return [(following, True)] if model.candidate.activate else [(model, False), (following, True)]


def with_candidate(model: ModelSpec, candidate: CandidateSpec) -> ModelSpec:
    """The model as it is with what the candidate says. What was measured on the model's roles is not known of the candidate's."""
    given = {name: getattr(candidate, name) for name in sorted(candidate.model_fields_set - _SWITCHES)}
    # null takes away what may be absent; of what has a value in any case it says nothing
    changed: dict[str, Any] = {n: v for n, v in given.items() if v is not None or ModelSpec.model_fields[n].default is None}
    gone: dict[str, Any] = {"image_digest": None} if "engine" in changed else {}
    if "model" in changed:
        gone["repository"] = None
    if "server" in changed:
        gone |= {"prefill": None, "decode": None}
    elif changed.get("prefill") or changed.get("decode"):
        gone["server"] = None
    unmeasured: dict[str, Any] = {n: r.model_copy(update={"calibration": None, "measured_rates": []}) for n, r in model.roles.items()}
    weights = _weights(model, candidate, other={"model", "repository"} & changed.keys())
    return model.model_copy(update={**unmeasured, **gone, **changed, "weights": weights, "generation": candidate.generation})


def _weights(model: ModelSpec, candidate: CandidateSpec, *, other: Iterable[str]) -> Any:
    given = candidate.weights
    revision = given.revision or (None if other else model.weights.revision)
    s3 = model.weights.s3
    if s3 is not None and given.s3 is not None:
        s3 = s3.model_copy(update={"prefix": given.s3.prefix})
    return model.weights.model_copy(update={"revision": revision, "s3": s3})


def identified(groups: Sequence[Group]) -> list[Group]:
    """The groups of one pair, their pods labelled with its identity."""
    known = {labels.IDENTITY: identity_of(groups)}
    return [replace(g, labels={**g.labels, **known}) for g in groups]


def identity_of(groups: Sequence[Group]) -> str:
    """Eight hexadecimal digits of what the pods of a pair must have in common; of an aggregated model, of its generation alone.

    vLLM 0.33 hashes its version, the model string, dtype, KV cache dtype, attention backend, number and shape of KV heads and the
    method of speculation (distributed/kv_transfer/kv_connector/v1/nixl/metadata.py), and compares block sizes at the handshake. Revision
    and served name are not in its hash, but one side's KV or requests would be wrong for the other. Tensor parallelism may differ.
    """
    served = groups[0].served
    facts = [served.spec.generation, in_common(groups) if served.spec.disaggregated else {}]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


def in_common(groups: Sequence[Group]) -> dict[str, Any]:
    """What the roles of a pair must have in common, by the stack file's words."""
    served, model = groups[0].served, groups[0].served.spec
    flags = [*served.facts.serve_flags, *model.extra_args]
    of_fields = {f.place: f.value_in(model) for f in OF_MODEL if f.flag.alike}
    of_roles = sorted({e.value for g in groups for held in shared_settings(model, g.role).values() for e in held if e.place.startswith(g.role)})
    return {
        **{place: value for place, value in of_fields.items() if value is not None and not isinstance(value, Spec)},
        # the image itself, from wherever it is read
        "engine": served.engine.image,
        "imageDigest": model.image_digest,
        "model": served.model_argument,
        "weights.revision": model.weights.revision,
        "servedModelName": model.served_model_name or model.name,
        "blockSize": [block_size_of(served) or 0],
        # another generation of GPUs may choose another attention backend
        "instanceType": sorted({g.instance.gpu.name[:1] for g in groups}),
        "speculative.method": model.speculative.method if model.speculative else None,
        "extraArgs": [f for f in flags if f.split("=", maxsplit=1)[0] not in LOGS_ONLY],
        "extraEnv": {n: v for n, v in model.extra_env.items() if not n.startswith(LOG_VARIABLES)},
        **_of_connector(model),
        **({"speculative.model": [model.speculative.model, model.speculative.revision]} if model.speculative and model.speculative.model else {}),
        # only where roles say any: pairs without them keep the identity that releases gave them
        **({"shared": of_roles} if of_roles else {}),
    }


def _of_connector(model: ModelSpec) -> dict[str, Any]:
    """What both roles must know of the connector, where it is not what releases before had."""
    said = {"mode": model.connector.mode, "lease": model.connector.lease_seconds, "buffer": model.connector.buffer_device}
    return {"connector": said} if said != {"mode": "pull", "lease": None, "buffer": None} else {}


def placed(findings: Iterable[Finding]) -> list[Finding]:
    """Findings where a person can act on them: about the model, if it says the same of the model or the candidate cannot say otherwise."""
    found = list(findings)
    of_models = [_content_at(f, Place.parse(f.path)) for f in found if not _of_candidate(Place.parse(f.path))]
    moved = [(f, belonging(Place.parse(f.path))) for f in found]
    return [
        replace(f, path=str(place))
        for f, place in moved
        if not _of_candidate(place) or _content_at(f, Place((*place.steps[:2], *place.steps[3:]))) not in of_models
    ]


def _content_at(finding: Finding, place: Place) -> tuple[object, ...]:
    """What a finding says as if it stood at `place`; another value or other ways out are another finding."""
    return finding.id, place, finding.level, finding.message, finding.value, finding.allowed


def _of_candidate(place: Place) -> bool:
    return (pair_of(place) or place).steps[2:] == ("candidate",)


def belonging(place: Place) -> Place:
    """A place below a candidate, or that of the model where a candidate has no such field."""
    key = place.steps[3:] if _of_candidate(place) else ()
    own = {field.alias or name for name, field in CandidateSpec.model_fields.items() if name != "weights"}
    return place if not key or key in _OF_THE_WEIGHTS or key[0] in own else Place((*place.steps[:2], *key))
