"""What follows `vllm serve`: the flags of the spec's fields, and those that the project sets by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

from ..phrases import say, say_key
from ..spec import ModelSpec, RoleSpec
from ..spec.base import Spec
from ..spec.engine_flags import FlagField, flag_fields
from ..spec.serving import RoleName
from .arguments import Said, read
from .connector import kv_transfer_config
from .drafts import speculative_config
from .extras import arguments_of
from .shapes import Group, Served, block_size_of

MASTER_PORT = 29501
DATA_PARALLEL_PORT = 29550
"""Where the leader waits for the engines of data-parallel ranks on other nodes."""
DEFAULT_BACKEND = "allgather_reducescatter"
STREAMER_CONCURRENCY = 16
"""Parallel reads of the Run:ai streamer, as Modelplane uses for 509 GiB in 6 minutes."""

OF_ROLE: list[FlagField] = flag_fields(RoleSpec)
OF_MODEL: list[FlagField] = [f for f in flag_fields(ModelSpec) if f.names[0] not in {*get_args(RoleName), "candidate"}]
"""The fields that become flags. A candidate has none of its own: its fields are put in place of the model's (planning/pairs.py)."""


class Option(NamedTuple):
    """What a field comes to on the command line; `place` is below the model, and `value` is calculated where the field leaves that open."""

    flag: str
    place: str
    value: Any


class OwnFlag(NamedTuple):
    """A flag without a field: what a person sets instead, if there is anything, and its value on a leader or worker; None leaves it out.

    `only` says for which models the project sets it; the others may have it in extraArgs. `why` is what is said of it there.
    """

    name: str
    instead: str = ""
    value: Callable[[Group, bool], Any] = lambda group, worker: None  # noqa: ARG005 (most are never set)
    only: Callable[[ModelSpec], bool] = lambda _: True
    why: str = "is set by the project"


_STREAMED = say("remove it, since {weights.s3} streams the weights")
_DRAFTS = say("set {speculative} of the model")
_SPLIT = say("set prefill and decode, which move KV by NIXL over EFA, and {connector}")
_NODES = say("set {tensorParallel}, {pipelineParallel} or {dataParallel} of the role, from which the nodes of an engine follow")
_RANKS = say("set {dataParallel} of the role, or {replicas}")
_LEADER = "$(LWS_LEADER_ADDRESS)"


def _of_nodes(value: str | int) -> Callable[[Group, bool], Any]:
    return lambda group, _: value if group.size > 1 else None


def _of_ranks(leader: str | int, worker: str | int) -> Callable[[Group, bool], Any]:
    return lambda group, is_worker: (worker if is_worker else leader) if group.size > 1 and group.spec.data_parallel > 1 else None


def _streams(model: ModelSpec) -> bool:
    return model.weights.s3 is not None


_OF_ENGINE = (
    OwnFlag("--disable-access-log-for-endpoints", "", lambda *_: "/health,/metrics,/v1/models"),
    OwnFlag("--load-format", _STREAMED, lambda group, _: "runai_streamer" if group.served.weights_uri else None, _streams),
    OwnFlag("--model-loader-extra-config", _STREAMED, lambda group, _: streamer_config(group) if group.served.weights_uri else None, _streams),
    OwnFlag("--kv-transfer-config", _SPLIT, lambda group, _: kv_transfer_config(group.served.spec, group.role)),
)
_OF_PODS = (
    OwnFlag("--nnodes", _NODES, _of_nodes("$(LWS_GROUP_SIZE)")),
    OwnFlag("--node-rank", _NODES, _of_nodes("$(LWS_WORKER_INDEX)")),
    OwnFlag("--master-addr", _NODES, _of_nodes(_LEADER)),
    OwnFlag("--master-port", _NODES, _of_nodes(MASTER_PORT)),
    # the leader listens there, and a listener on a name fails with some builds of ZMQ (https://github.com/kserve/kserve/issues/5155)
    OwnFlag("--data-parallel-address", _RANKS, _of_ranks("$(VLLM_HOST_IP)", _LEADER)),
    OwnFlag("--data-parallel-rpc-port", _RANKS, _of_ranks(DATA_PARALLEL_PORT, DATA_PARALLEL_PORT)),
    OwnFlag("--headless", _NODES, lambda _, worker: worker),
    OwnFlag("--port", "", lambda group, worker: None if worker else group.engine_port),
)
"""Behind extraArgs: what differs between the pods of one engine."""
_NEVER = (
    OwnFlag("--model", "set model or repository of the model"),
    OwnFlag("--api-key", say("set {gateway.apiKeySecret}")),
    *(OwnFlag(f"--spec-{name}", _DRAFTS, why=say("is a second way to say {speculative}")) for name in ("method", "model", "tokens")),
    *(
        OwnFlag(f"--data-parallel-{name}", _RANKS, why=say("is set by the project, which makes it of {dataParallel} and the nodes of the engine"))
        for name in (
            "size-local", "rank", "start-rank", "backend", "hybrid-lb", "external-lb", "multi-port-external-lb", "supervisor-port",
        )
    ),
)  # fmt: skip
"""What would put a secret, or a second source of truth, on the command line; no pod ever has it."""

_FIRST = (
    "--served-model-name", "--tensor-parallel-size", "--max-model-len", "--gpu-memory-utilization", "--shutdown-timeout",
    "--disable-access-log-for-endpoints", "--pipeline-parallel-size", "--data-parallel-size", "--revision", "--dtype", "--kv-cache-dtype",
    "--block-size", "--max-num-batched-tokens", "--max-num-seqs", "--load-format", "--model-loader-extra-config", "--enable-expert-parallel",
    "--all2all-backend", "--speculative-config", "--kv-transfer-config",
)  # fmt: skip
"""The order in which releases wrote these flags: another one would restart every engine. Other flags follow in the order of their fields."""


def _owned() -> dict[str, str]:
    owners = [(f.flag.name, f.place, owner) for owner, fields in (("model", OF_MODEL), ("role", OF_ROLE)) for f in fields]
    of_fields: dict[str, str] = {
        flag: say("set {} of the {}", say_key(place), " or ".join(owner for name, _, owner in owners if name == flag)) for flag, place, _ in owners
    }
    return of_fields | {own.name: own.instead for own in (*_OF_ENGINE, *_OF_PODS, *_NEVER)}


OWNED: Mapping[str, str] = _owned()
"""Every flag that a person cannot add, with what to set instead: all that is ever on a command line, and some that never are."""
_OWN = {own.name: own for own in (*_OF_ENGINE, *_OF_PODS, *_NEVER)}


def why_ours(flag: str) -> str:
    """What is said of a flag of the project in extraArgs."""
    return _OWN[flag].why if flag in _OWN else OwnFlag(flag).why


def is_set(flag: str, model: ModelSpec) -> bool:
    """Whether the project sets a flag of a model, or says what it means by a field."""
    return flag in OWNED and (flag not in _OWN or _OWN[flag].only(model))


def holds_anyway(said: Said, model: ModelSpec, roles: Iterable[RoleName]) -> bool:
    """Whether a flag that the project sets is given with the value that it has without it, on each of these roles."""
    if said.off or said.keys:
        return False
    if said.option in _OWN:
        # decode listens on another port, behind its sidecar
        return said.is_default and not (said.option == "--port" and "decode" in roles)
    given = [_stated(said.option, model, model.roles[name]) for name in roles]
    return bool(given) and all(said.is_default if value is None else said.plain == as_text(value) for value in given)


def _stated(flag: str, model: ModelSpec, role: RoleSpec) -> Any:
    """What the fields say of a flag, without what only a catalogue knows; None where they leave it out."""
    found: Any = None
    for spec, fields in ((model, OF_MODEL), (role, OF_ROLE)):
        for field in fields:
            if field.flag.name == flag and (value := field.value_in(spec)) not in (None, False, field.flag.unless):
                found = value
    if flag == "--served-model-name":
        return found or model.name
    return "the catalogue's" if found is None and flag in {"--max-model-len", "--block-size", "--all2all-backend"} else found


def options(served: Served, name: RoleName, role: RoleSpec) -> dict[str, Option]:
    """What the fields of a model and of one of its roles come to, by flag; what is left out is not in it."""
    model, spread = served.spec, role.expert_parallel and role.data_parallel > 1
    calculated = {
        "servedModelName": model.served_model_name or model.name,
        "maxModelLen": served.max_model_len,
        "blockSize": block_size_of(served),
        "speculative": speculative_config(served),
        "weights.revision": model.weights.revision if served.weights_uri is None else None,
        f"{name}.all2allBackend": (role.all2all_backend or DEFAULT_BACKEND) if spread else None,
    }
    found = {}
    # the role's after the model's: of a flag that both have a field for, the role's counts
    for spec, fields, above in ((model, OF_MODEL, ""), (role, OF_ROLE, f"{name}.")):
        for field in fields:
            place = above + field.place
            value = calculated.get(place, field.value_in(spec))
            if value is not None and value is not False and value != field.flag.unless:
                found[field.flag.name] = Option(field.flag.name, place, value)
    return found


def command_args(group: Group, *, worker: bool) -> list[str]:
    """Arguments after `vllm serve`; `$(VAR)` is expanded by the kubelet, so no shell is needed."""
    of_fields = {flag: option.value for flag, option in options(group.served, group.role, group.spec).items()}
    of_engine = of_fields | {own.name: own.value(group, worker) for own in _OF_ENGINE}
    ordered = sorted(of_engine, key=lambda flag: _FIRST.index(flag) if flag in _FIRST else len(_FIRST))
    return [
        group.served.model_argument,
        *_arguments((flag, of_engine[flag]) for flag in ordered),
        *group.served.facts.serve_flags,
        *added(group),
        *_arguments((own.name, own.value(group, worker)) for own in _OF_PODS),
    ]


def added(group: Group) -> list[str]:
    """The flags that a person adds, without those that say what the project sets in any case."""
    model, version = group.served.spec, group.served.engine.version
    texts = (extra.value for extra in arguments_of(model, group.role))
    return [text for text in texts if not any(is_set(one.option, model) for one in read(version, text))]


def _arguments(flags: Iterable[tuple[str, Any]]) -> Iterator[str]:
    for flag, value in flags:
        if value is True:
            yield flag
        elif value is not None and value is not False:
            yield f"{flag}={as_text(value)}"


def as_text(value: Any) -> str:
    """A value as it stands behind `--flag=`."""
    plain = value.model_dump() if isinstance(value, Spec) else value
    return json.dumps(plain, separators=(",", ":")) if isinstance(plain, dict) else str(plain)


def streamer_config(group: Group) -> dict[str, Any]:
    """Settings of the Run:ai streamer; ranks of one pod share the reading, over nodes or data-parallel ranks that is not known to work."""
    shared = group.size == 1 and group.spec.tensor_parallel > 1 and group.spec.data_parallel == 1
    return {"concurrency": STREAMER_CONCURRENCY, **({"distributed": True} if shared else {})}
