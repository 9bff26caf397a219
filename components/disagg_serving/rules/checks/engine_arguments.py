"""Rules about the engine: image, context, flags and environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...catalog.flags import flags_of
from ...credentials import carries_secret
from ...errors import Level
from ...forecast.fit.constants import batch_defaults
from ...phrases import say
from ...planning.command_line import OWNED
from ...planning.extras import roles_reached, written_arguments, written_variables
from ...planning.shapes import Served, group_size
from ..documents import EKS, LIBFABRIC, VLLM
from ..registry import Fault, Stage, Subject, remove, rule, use
from .weights import COMMIT

SHORT_FLAG, OPTIMIZATION, LEVEL_FLAG = re.compile(r"-[A-Za-z]"), re.compile(r"-O=?[0-3]"), "--optimization-level"
"""vLLM reads -O3 as --optimization-level 3 (utils/argparse_utils.py)."""
SHORTEST = len("--xx")
"""Shortened flags of so few letters could be any."""
EXPANDED_SECRET = re.compile(r"\$\((HF_TOKEN|VLLM_API_KEY)\)")
"""The kubelet puts a variable's value where its name stands like this."""

FORBIDDEN_ENV = {
    "NCCL_ALGO": "makes the OFI tuner refuse to load",
    "NCCL_PROTO": "makes the OFI tuner refuse to load",
    "NCCL_MIN_NCHANNELS": "starves EFA with small messages",
    "NCCL_TOPO_FILE": "is written by the OFI plugin where one is needed",
    "VLLM_SERVER_DEV_MODE": "opens endpoints that reset and inspect the engine",
    "VLLM_API_KEY": "is a secret",
    "VLLM_PORT": "is read as the engine's internal port",
    "CUDA_VISIBLE_DEVICES": "hides GPUs that the pod asked for and the engine counts on",
    "NVIDIA_VISIBLE_DEVICES": "is what the device plugin tells a pod about its GPUs",
}
OWNED_ENV = frozenset(
    {
        "VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_NIXL_SIDE_CHANNEL_PORT", "VLLM_HOST_IP", "VLLM_ENGINE_READY_TIMEOUT_S", "HF_HOME", "HF_TOKEN", "USER",
        "VLLM_NO_USAGE_STATS", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "FI_PROVIDER", "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN",
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "VLLM_CACHE_ROOT", "HF_HUB_OFFLINE", "AWS_REGION", "AWS_DEFAULT_REGION",
        "LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "VLLM_ALL2ALL_BACKEND",
        "VLLM_DP_SIZE", "VLLM_DP_RANK", "VLLM_DP_RANK_LOCAL", "VLLM_DP_MASTER_IP", "VLLM_DP_MASTER_PORT",
    }
)  # fmt: skip
NCCL_DEBUG, NCCL_LEVELS = "NCCL_DEBUG", ("VERSION", "WARN", "INFO", "ABORT", "TRACE")
"""Levels of NCCL's log: extraEnv may ask for another one than WARN."""
CONTEXTS = (131072, 65536, 32768, 16384, 8192, 4096)
"""Lengths that are proposed where the model's own context does not fit."""


class Harm(NamedTuple):
    """What a variable does to traffic over EFA: by which values (None: by any), why, and what is right."""

    values: frozenset[str] | None
    reason: str
    right: str
    level: Level | None = None


OFF, ON = frozenset({"0", "false", "no", "off"}), frozenset({"1", "true", "yes", "on"})
EFA_ENV = {
    "FI_EFA_USE_DEVICE_RDMA": Harm(OFF, "turns GPUDirect RDMA off, which NIXL's LIBFABRIC backend and NCCL need", "1, or without it"),
    "NCCL_NET": Harm(frozenset({"socket", "ib"}), "takes NCCL off EFA", "without it: NCCL_NET_PLUGIN is ofi"),
    "UCX_TLS": Harm(None, "has no effect: KV moves by NIXL's LIBFABRIC backend, not by UCX", "without it", Level.WARNING),
    "FI_EFA_USE_HUGE_PAGE": Harm(ON, "needs huge pages, which Auto Mode's nodes do not reserve", "0, or without it"),
    "LD_LIBRARY_PATH": Harm(None, "replaces the image's path, where libfabric, NIXL and the OFI plugin lie", "without it"),
    "RDMAV_FORK_SAFE": Harm(None, "slows every registration of memory: the OFI plugin makes forks safe by itself", "without it", Level.WARNING),
}
"""Variables that break or slow EFA: https://github.com/aws/aws-ofi-nccl/blob/v1.21.1/doc/efa-env-var.md and what the image sets."""

FORECAST_FLAGS = (
    "--decode-context-parallel-size", "--prefill-context-parallel-size", "--cpu-offload-gb", "--quantization", "--kv-cache-memory-bytes",
    "--num-gpu-blocks-override", "--hf-overrides", "--compilation-config", "--cudagraph-capture-sizes",
    "--disable-hybrid-kv-cache-manager", "--enable-dbo", "--enable-eplb", "--enable-lora", "--kv-cache-dtype-skip-layers",
    "--mamba-cache-dtype", "--eplb-config", "--max-cudagraph-capture-size", "--ubatch-size",
)  # fmt: skip
"""Flags that change memory or layout and that forecast/fit does not read."""
FORECAST_ENV = frozenset({"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "VLLM_MLA_DISABLE", "VLLM_PP_LAYER_PARTITION"})

OWN_DRAFTS = frozenset({"ngram", "ngram_gpu", "suffix", "mtp"})
"""Methods that need no draft model, beside those of single architectures, whose names end like MTP."""
OTHER_DRAFTS = frozenset({"eagle", "eagle3", "draft_model", "dflash", "custom_class"})
"""Methods that need a draft model."""
MTP = re.compile(r"(^|_)mtp$")


@rule("engine-libfabric", Level.ERROR, Stage.FORM, f"{LIBFABRIC} and {VLLM}docker/Dockerfile.efa")
def engine_libfabric(s: Subject) -> Iterator[Fault]:
    """Engines whose pods talk over EFA run from an image with libfabric; without it NCCL and NIXL fall back to TCP or do not start."""
    for served in s.served:
        if _over_efa(served) and not served.engine.libfabric:
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


@rule("max-model-len", Level.ERROR, Stage.FORM, f"{VLLM}vllm/config/model.py", blocks_layout=True, reads=("workload",), judges="engine")
def max_model_len(s: Subject) -> Iterator[Fault]:
    """The longest sequence is within the model's context."""
    for served in s.served:
        asked = served.spec.max_model_len
        if asked and asked > served.facts.context_length:
            longest = served.facts.context_length
            path, message = f"{served.path}.maxModelLen", f"is longer than the context of {served.spec.model}"
            shorter = [n for n in CONTEXTS if n < longest]
            yield Fault(path, message, asked, f"at most {longest}", ways=[use(path, longest, *shorter)])
        work = served.spec.workload
        if work and work.input_tokens + work.output_tokens > served.max_model_len:
            total = work.input_tokens + work.output_tokens
            message = say("of a mean request are more than {maxModelLen} {}", served.max_model_len)
            allowed = f"at most {served.max_model_len} together, and {served.facts.context_length} are the context of {served.spec.model}"
            ways = [[dict.fromkeys(_lengths(s, served, total), total)]]
            yield Fault(f"{served.path}.workload", message, f"{total} tokens", allowed, ways=ways, otherwise="count shorter requests")


@rule("extra-args", Level.ERROR, Stage.FORM, "our choice: docs/engine.md", firm=True)
def extra_args(s: Subject) -> Iterator[Fault]:
    """Extra flags are whole (`--flag=value`), are not set by the project, and carry no secret."""
    for of_pair, model in s.written():
        for place, arg in written_arguments(model):
            path, flag = f"{of_pair}.{place}", arg.split("=", 1)[0]
            if SHORT_FLAG.match(arg) and not any(c.isspace() for c in flag):
                ways = [use(path, f"{LEVEL_FLAG}={arg[2:].lstrip('=')}") if OPTIMIZATION.fullmatch(arg) else []]
                message = "is a short flag, which is not read here"
                yield Fault(path, message, arg, "--flag or --flag=value, one an entry", ways=ways, otherwise="write its long form")
            elif not arg.startswith("--") or not flag.strip("-") or any(c.isspace() for c in flag):
                yield Fault(path, "is not a flag", arg, "--flag or --flag=value, one an entry", "join flag and value with =")
            elif is_secret(arg):
                yield Fault(
                    path,
                    "looks like a secret, which would stand in the pod's manifest",
                    flag,
                    say("a secret key that {weights.tokenKey} names"),
                    "name a secret key instead",
                )
            elif EXPANDED_SECRET.search(arg):
                allowed = "flags without $(HF_TOKEN) and $(VLLM_API_KEY)"
                yield Fault(path, "expands a secret into the command line", arg, allowed, ways=[remove(path)])
            elif ours := owned(flag):
                instead = OWNED[ours[0]] if len(ours) == 1 else "use the field of the model or role"
                ways = [] if instead else [remove(path)]
                yield Fault(path, "is set by the project", arg, "flags without a field of their own", instead, ways=ways)


@rule(
    "extra-env",
    Level.ERROR,
    Stage.FORM,
    f"https://github.com/aws/aws-ofi-nccl/blob/v1.21.1/doc/efa-env-var.md and {VLLM}docs/usage/security.md",
    firm=True,
)
def extra_env(s: Subject) -> Iterator[Fault]:
    """Extra variables neither break EFA nor open the engine, are not set by the project, and carry no secret."""
    for of_pair, model in s.written():
        for name, (place, value) in written_variables(model):
            path = f"{of_pair}.{place}"
            if name in FORBIDDEN_ENV:
                yield Fault(path, FORBIDDEN_ENV[name], None, "without it", ways=[remove(path)])
            elif name in OWNED_ENV:
                yield Fault(path, "is set by the project", None, "variables that it does not set", ways=[remove(path)])
            elif name == NCCL_DEBUG and value.upper() not in NCCL_LEVELS:
                yield Fault(path, "is no level of NCCL's log", value, ", ".join(NCCL_LEVELS), ways=[use(path, "INFO")])
            elif EXPANDED_SECRET.search(value):
                allowed = "values without $(HF_TOKEN) and $(VLLM_API_KEY)"
                yield Fault(path, "copies a secret into another variable", None, allowed, ways=[remove(path)])
            elif carries_secret(name, value):
                yield Fault(
                    path,
                    "looks like a secret, which would stand in the pod's manifest",
                    None,
                    say("a secret key that {weights.tokenKey} names"),
                    "name a secret key instead",
                )


@rule("efa-env", Level.ERROR, Stage.FORM, f"https://github.com/aws/aws-ofi-nccl/blob/v1.21.1/doc/efa-env-var.md {LIBFABRIC} {EKS}node-efa.html")
def efa_env(s: Subject) -> Iterator[Fault]:
    """Where pods talk over EFA, no extra variable takes the traffic off it or names what its nodes lack."""
    for served in s.served:
        for name, (place, value) in written_variables(served.spec) if _over_efa(served) else ():
            harm = EFA_ENV.get(name)
            if harm is not None and (harm.values is None or value.lower() in harm.values):
                path = f"{served.path}.{place}"
                yield Fault(path, harm.reason, value, harm.right, level=harm.level, ways=[remove(path)])


@rule("forecast-flags", Level.WARNING, Stage.FORM, "docs/forecast.md")
def forecast_flags(s: Subject) -> Iterator[Fault]:
    """Flags and variables that change memory or layout are not counted in the forecast, unless every role has a calibration."""
    message = "changes memory or layout, which the memory forecast does not count"
    fix = "set calibration in each role, from the log of a start with it"
    for served in s.served:
        flags = [extra for extra in written_arguments(served.spec) if any(names(extra.value, flag) for flag in FORECAST_FLAGS)]
        variables = [extra for name, extra in sorted(written_variables(served.spec)) if name in FORECAST_ENV]
        for place, value in (*flags, *variables):
            if any(served.spec.roles[name].calibration is None for name in roles_reached(served.spec, place)):
                yield Fault(f"{served.path}.{place}", message, value, "without it, or calibration", fix)


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


def is_secret(arg: str) -> bool:
    """Whether a flag is named like a secret, or its value is one."""
    return carries_secret(arg.split("=", 1)[0], arg)


def names(arg: str, flag: str) -> bool:
    """Whether an extra argument gives `flag`, also with underscores, shortened, or as one field of it."""
    name = _name(arg.split("=", 1)[0])
    return name == flag or (len(name) > SHORTEST and flag.startswith(name))


def _over_efa(served: Served) -> bool:
    """Whether the pods of a model talk over EFA: prefill with decode, or the nodes of one engine."""
    return served.spec.disaggregated or any(group_size(r, served.instances[n]) > 1 for n, r in served.spec.roles.items())


def _name(flag: str) -> str:
    # --kv-transfer-config.kv_role=x sets one field of a JSON flag
    return flag.split(".", 1)[0].replace("_", "-")


def owned(flag: str) -> list[str]:
    """The flags that the project sets and that this one may stand for: also when it is negated, or shortened as vLLM's parser allows it."""
    name = _name(flag).replace("--no-", "--", 1)
    asked = (name, name.replace("--disable-", "--enable-", 1))
    return [one for one in OWNED if one in asked] or [one for one in OWNED if one.startswith(asked)]


def _tuple(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
