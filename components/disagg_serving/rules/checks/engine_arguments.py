"""Rules about the engine: image, context, dtypes and drafts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...catalog.flags import flags_of
from ...errors import Level
from ...forecast.fit.constants import batch_defaults
from ...phrases import say
from ...planning.arguments import Arguments
from ...planning.extras import arguments_of, variables_of
from ...planning.shapes import Served
from ..documents import LIBFABRIC, VLLM
from ..registry import Fault, Stage, Subject, remove, rule, use
from .extra_arguments import over_efa
from .weights import COMMIT

CONTEXTS = (131072, 65536, 32768, 16384, 8192, 4096)
"""Lengths that are proposed where the model's own context does not fit."""
ALREADY_SCALED = frozenset({"su", "longrope", "llama3", "deepseek_llama_scaling"})
YARN, YARN_NOT_APPLIED = frozenset({"yarn", "deepseek_yarn"}), (0, 33)
"""Kinds of RoPE whose factor the context has already, and the version from which vLLM does not multiply by YaRN's (vllm/config/model.py)."""
LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"

OWN_DRAFTS = frozenset({"ngram", "ngram_gpu", "suffix", "mtp"})
"""Methods that need no draft model, beside those of single architectures, whose names end like MTP."""
OTHER_DRAFTS = frozenset({"eagle", "eagle3", "draft_model", "dflash", "custom_class"})
"""Methods that need a draft model."""
MTP = re.compile(r"(^|_)mtp$")


@rule("engine-libfabric", Level.ERROR, Stage.FORM, f"{LIBFABRIC} and {VLLM}docker/Dockerfile.efa")
def engine_libfabric(s: Subject) -> Iterator[Fault]:
    """Engines whose pods talk over EFA run from an image with libfabric; without it NCCL and NIXL fall back to TCP or do not start."""
    for served in s.served:
        if over_efa(served) and not served.engine.libfabric:
            able = [e for e in s.catalog.engines if s.catalog.engines[e].libfabric]
            path = f"{served.path}.engine"
            yield Fault(path, "has no libfabric, so nothing moves over EFA", served.spec.engine, ", ".join(able), ways=[use(path, *reversed(able))])


@rule("engine-version", Level.ERROR, Stage.FORM, "https://github.com/vllm-project/recipes/tree/8959cf64/models", judges="engine")
def engine_version(s: Subject) -> Iterator[Fault]:
    """The engine is new enough for the model."""
    for served in s.served:
        oldest = served.facts.min_engine_version
        if oldest and _tuple(served.engine.version) < _tuple(oldest):
            newer = [e for e in s.catalog.engines if _tuple(s.catalog.engines[e].version) >= _tuple(oldest)]
            path, message = f"{served.path}.engine", f"is vLLM {served.engine.version}, too old for {served.spec.model}"
            yield Fault(path, message, served.spec.engine, f"vLLM {oldest} or newer", ways=[use(path, *reversed(newer))])


@rule("image-unverified", Level.INFO, Stage.FORM, "our choice: docs/security.md")
def image_unverified(s: Subject) -> Iterator[Fault]:
    """An image whose tag nobody has seen is pinned by digest before it is trusted; reported once per image."""
    reported: set[str] = set()
    for served in s.served:
        if not served.engine.tag_verified and not served.spec.image_digest and served.engine.image not in reported:
            reported.add(served.engine.image)
            fix = say("look the digest up in the registry and set {imageDigest}")
            yield Fault(
                f"{served.path}.imageDigest",
                f"unverified: the tag of {served.engine.image} was not seen in its registry",
                None,
                "sha256:...",
                fix,
            )


@rule("revision-unpinned", Level.INFO, Stage.FORM, "https://huggingface.co/docs/huggingface_hub/guides/download (revision)")
def revision_unpinned(s: Subject) -> Iterator[Fault]:
    """Without a revision two pods that start on different days can load different weights."""
    for served in s.served:
        weights = served.spec.weights
        floating = weights.revision is not None and not COMMIT.fullmatch(weights.revision)
        if floating and weights.s3 is None:
            path = f"{served.path}.weights.revision"
            yield Fault(path, "is a name that may come to mean another commit", weights.revision, "a commit", "name the commit")
        if weights.revision is None and weights.s3 is None:
            fix = say("set {weights.revision} to a commit of the repository")
            yield Fault(f"{served.path}.weights.revision", f"is not set, so {served.repository} floats", None, "a commit", fix)


def _contexts(served: Served) -> tuple[int, int]:
    """The longest context of every role as its flags override the model's: as the engine's version reads them, and as they mean it."""
    found = [_context(served, Arguments(served.engine.version, (e.value for e in arguments_of(served.spec, name)))) for name in served.spec.roles]
    return min((one for one, _ in found), default=served.facts.context_length), min((one for _, one in found), default=served.facts.context_length)


def _context(served: Served, said: Arguments) -> tuple[int, int]:
    overrides = said.data("--hf-overrides")
    inner = overrides.get("text_config")
    told = {**overrides, **(inner if isinstance(inner, dict) else {})}
    length = _positive(told.get("max_position_embeddings")) or served.facts.context_length
    rope = told.get("rope_parameters") or told.get("rope_scaling")
    whole = _positive(told.get("model_max_length"))
    if not isinstance(rope, dict):
        return max(length, whole), max(length, whole)
    kind, factor = str(rope.get("rope_type", rope.get("type", "default"))), float(_positive(rope.get("factor")) or 1)
    if kind in ALREADY_SCALED:
        return max(length, whole), max(length, whole)
    if kind in YARN:
        scaled = max(int((_positive(rope.get("original_max_position_embeddings")) or length) * factor), length)
        read = length if _tuple(served.engine.version) >= YARN_NOT_APPLIED else scaled
        return max(read, whole), max(scaled, whole)
    return max(int(length * factor), whole), max(int(length * factor), whole)


def _positive(value: object) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 10**12 else 0


def _allows_longer(served: Served) -> bool:
    """Whether a variable lets vLLM take more than the context, at the risk of wrong answers."""
    return any(variables_of(served.spec, name).get(LONGER, ("", "0"))[1] not in {"", "0"} for name in served.spec.roles)


@rule("max-model-len", Level.ERROR, Stage.FORM, f"{VLLM}vllm/config/model.py", blocks_layout=True, reads=("workload",), judges="engine")
def max_model_len(s: Subject) -> Iterator[Fault]:
    """The longest sequence is within the model's context."""
    for served in s.served:
        asked = served.spec.max_model_len
        longest, scaled = _contexts(served)
        if asked and asked > longest:
            path, message = f"{served.path}.maxModelLen", f"is longer than the context of {served.spec.model}"
            shorter = [n for n in CONTEXTS if n < longest]
            level = Level.WARNING if asked <= scaled or _allows_longer(served) else None
            if asked <= scaled:
                message += f": vLLM {served.engine.version} takes a YaRN factor for applied already"
            advice = say('add "max_position_embeddings" to --hf-overrides') if asked <= scaled else ""
            yield Fault(path, message, asked, f"at most {longest}", advice, level, [use(path, longest, *shorter)])
        work = served.spec.workload
        if work and work.input_tokens + work.output_tokens > served.max_model_len:
            total = work.input_tokens + work.output_tokens
            message = say("of a mean request are more than {maxModelLen} {}", served.max_model_len)
            allowed = f"at most {served.max_model_len} together, and {served.facts.context_length} are the context of {served.spec.model}"
            ways = [[dict.fromkeys(_lengths(s, served, total), total)]]
            yield Fault(f"{served.path}.workload", message, f"{total} tokens", allowed, ways=ways, otherwise="count shorter requests")


@rule(
    "kv-dtype",
    Level.ERROR,
    Stage.FORM,
    f"{VLLM}vllm/model_executor/layers/attention/attention.py",
    judges="engine",
)
def kv_dtype(s: Subject) -> Iterator[Fault]:
    """A native FP8 checkpoint does not keep KV as fp8_e5m2; a compressed-tensors one without scales of KV may."""
    for served in s.served:
        if served.spec.kv_cache_dtype == "fp8_e5m2" and served.facts.weight_dtype == "fp8":
            level = None if served.facts.moe is not None else Level.WARNING
            message = "is refused by vLLM for fp8 checkpoints" + ("" if level is None else " that hold scales of the KV cache")
            path = f"{served.path}.kvCacheDtype"
            yield Fault(path, message, "fp8_e5m2", "auto, bfloat16, fp8, fp8_e4m3", level=level, ways=[use(path, "fp8")])


@rule("speculative-method", Level.ERROR, Stage.FORM, f"{VLLM}vllm/config/speculative.py (SpeculativeMethod)", judges="engine")
def speculative_method(s: Subject) -> Iterator[Fault]:
    """A speculative method is one of vLLM's, names the draft model that it needs, and mtp has layers to draft with."""
    for served in s.served:
        if served.spec.speculative is None:
            continue
        allowed = ", ".join(sorted(OWN_DRAFTS if served.facts.mtp_layers else OWN_DRAFTS - {"mtp"}))
        method, path = served.spec.speculative.method, f"{served.path}.speculative.method"
        ways = [use(path, "ngram"), remove(f"{served.path}.speculative")]
        listed = _methods(served) if method not in OWN_DRAFTS else ()
        if listed and method not in listed:
            yield Fault(path, f"is no method of vLLM {served.engine.version}", method, allowed, ways=ways)
        elif MTP.search(method):
            if not served.facts.mtp_layers:
                message = f"has no layers to draft with: {served.spec.model} has none for it"
                yield Fault(path, message, method, allowed, ways=ways)
        elif method in OTHER_DRAFTS:
            if served.spec.speculative.model is None:
                advice = say("name a draft model of it in {speculative.model}")
                yield Fault(path, "needs a draft model", method, say("{speculative.model}, or {}", allowed), advice, ways=ways)
        elif method not in OWN_DRAFTS:
            yield Fault(path, "is not known here as a method of vLLM", method, allowed, "see vLLM's SpeculativeMethod", Level.WARNING)
        elif method == "suffix":
            message = "needs the package arctic-inference, which vLLM does not bring: it stops without it"
            yield Fault(path, message, method, allowed, "use an image that holds it", Level.WARNING)


@rule(
    "max-num-seqs",
    Level.ERROR,
    Stage.FORM,
    f"{VLLM}vllm/config/scheduler.py (SchedulerConfig)",
    reads=("maxNumBatchedTokens",),
)
def max_num_seqs(s: Subject) -> Iterator[Fault]:
    """An engine step has at least a token for each of its requests."""
    for served, name, role, path in s.roles():
        given = role.max_num_batched_tokens
        tokens = given or batch_defaults(served.instances[name].gpu.memory_gib_torch, served.engine.version)[0]
        if role.max_num_seqs and role.max_num_seqs > tokens:
            message = say("is more than {maxNumBatchedTokens} {}" if given else "is more than the default of {maxNumBatchedTokens}, {}", tokens)
            ways = [use(f"{path}.maxNumSeqs", tokens), use(f"{path}.maxNumBatchedTokens", role.max_num_seqs)]
            yield Fault(f"{path}.maxNumSeqs", message, role.max_num_seqs, f"at most {tokens}", ways=ways)


@rule("gated-model", Level.WARNING, Stage.FORM, "https://huggingface.co/docs/hub/models-gated")
def gated_model(s: Subject) -> Iterator[Fault]:
    """A gated repository is downloaded with a token."""
    for served in s.served:
        downloads = served.weights_uri is None or served.spec.weights.mirror
        if served.facts.gated and downloads and not served.spec.weights.token_key:
            fix = "run `pulumi config set --secret disagg-serving:hfToken` and name that key here"
            yield Fault(f"{served.path}.weights.tokenKey", f"is missing: {served.repository} is gated", None, "the name of a secret key", fix)


def _methods(served: Served) -> tuple[str, ...]:
    """The methods that the engine's own parser lists; none where nobody has asked it."""
    known = flags_of(served.engine.version) or {}
    return known["--spec-method"].choices if "--spec-method" in known else ()


def _lengths(s: Subject, served: Served, least: int) -> list[str]:
    """Where the model or its candidate says a length that is below `least`; a candidate without one takes the model's."""
    candidate = s.spec.models[served.index].candidate
    pairs = [v for v in s.served if v.index == served.index and v.max_model_len < least]
    own = candidate is not None and candidate.max_model_len is not None
    return [f"{v.path}.maxModelLen" for v in pairs if not v.candidate or own or len(pairs) == 1]


def _tuple(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
