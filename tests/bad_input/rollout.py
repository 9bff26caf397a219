"""Candidates that cannot be: the same again, under a taken name, without room or without their own weights."""

from __future__ import annotations

from typing import Any

from factories import aggregated, environment, model, role

from .case import Case, one

CANDIDATE = "models[0].candidate"
RESERVED = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 1}
STREAMED = {"s3": {"bucket": "acme-weights", "prefix": "llama/v1"}, "revision": "0123abcdef"}


def following(**fields: Any) -> dict[str, Any]:
    """An environment whose model has this candidate, by default of another length."""
    return one(candidate={"generation": "b", "maxModelLen": 4096, **fields})


def full(nodes: int, replicas: int) -> dict[str, Any]:
    """Whole-node engines on reserved nodes, and as many again as candidate."""
    server = role(tensorParallel=8, replicas=replicas, capacity={**RESERVED, "nodes": nodes})
    return environment(aggregated(server=server, candidate={"generation": "b", "maxModelLen": 4096}))


ROLLOUT_CASES = [
    Case("candidate without a name", one(candidate={"maxModelLen": 4096}), f"{CANDIDATE}.generation", says="is required"),
    Case("candidate that is the same", one(candidate={"generation": "b"}), CANDIDATE, "", "what differs", "remove it, or change something"),
    Case(
        "candidate left behind",
        one(candidate={"generation": "b", "activate": True}),
        CANDIDATE,
        fix="set generation: b and remove it",
        says="is the same as m",
    ),
    Case(
        "activation without a candidate",
        one(activate=True),
        "models[0].activate",
        "",
        "candidate",
        says="is not a known key",
    ),
    Case(
        "generation that serves already",
        one(generation="b", candidate={"generation": "b", "maxModelLen": 4096}),
        f"{CANDIDATE}.generation",
        "b",
        "another one",
    ),
    Case(
        "generation that makes another model's name",
        environment(aggregated(candidate={"generation": "b", "maxModelLen": 4096}), aggregated(name="m-b")),
        "models[1].name",
        "m-b",
        "names whose objects differ",
        "choose another",
    ),
    Case("generation called like a role", following(generation="decode"), f"{CANDIDATE}.generation", "decode", "anything but", "choose another"),
    Case("generation called like the router", one(generation="epp"), "models[0].generation", "epp", "anything but", "choose another"),
    Case("generation with a dash", following(generation="v-2"), f"{CANDIDATE}.generation", "v-2", "letters and digits"),
    Case("long generation", following(generation="september"), f"{CANDIDATE}.generation", "september", "at most 8 characters"),
    Case(
        "names without room for the generation",
        environment(model(name="l" * 40, candidate={"generation": "autumn", "maxModelLen": 4096})),
        "models[0].name",
        "llll",
        "at most 35 characters",
        "shorten it",
        says="generation autumn's prefill",
    ),
    Case(
        "half a candidate",
        environment(aggregated(candidate={"generation": "b", "prefill": role()})),
        f"{CANDIDATE}.decode",
        "",
        "prefill and decode, or server",
    ),
    *(
        Case(
            f"candidate of both modes, {' and '.join(roles)}",
            environment(base(candidate={"generation": "b", "server": role(), **{name: role() for name in roles}})),
            f"{CANDIDATE}.server",
            "",
            "prefill and decode, or server",
            "remove one mode",
            says=f"stands beside {' and '.join(roles)}",
        )
        for base, roles in ((model, ["prefill"]), (model, ["decode"]), (aggregated, ["prefill", "decode"]))
    ),
    Case("candidate of a misspelt engine", following(engine="vllm-0.33"), f"{CANDIDATE}.engine", "vllm-0.33", "vllm-0.33.0-efa"),
    Case("candidate of three GPUs", following(decode=role(tensorParallel=3)), f"{CANDIDATE}.decode.tensorParallel", "3", "1, 2, 4, 8", "use 2"),
    Case("candidate with a secret", following(extraEnv={"MY_TOKEN": "hf_abcdefghijk"}), f"{CANDIDATE}.extraEnv.MY_TOKEN", "", "weights.tokenKey"),
    Case(
        "candidate without room",
        full(2, 2),
        f"{CANDIDATE}.server",
        "",
        "",
        "reserve more for both pairs and say so in capacity.nodes, or give the candidate a reservation of its own",
        says="needs 4 nodes (32 GPUs) for both pairs, of which 2 serve, and 2 (16 GPUs) are reserved",
    ),
    Case(
        "candidate with room for one engine",
        full(3, 2),
        f"{CANDIDATE}.server",
        "",
        "at most 1 replicas",
        "use {instanceType: p5.48xlarge, replicas: 1, tensorParallel: 8,",
    ),
    Case(
        "other revision in the same folder",
        one(weights=STREAMED, candidate={"generation": "b", "weights": {"revision": "fedcba9876"}}),
        f"{CANDIDATE}.weights.revision",
        "fedcba9876",
        "with weights.s3.prefix",
        "add weights.s3.prefix to the candidate",
    ),
    Case(
        "other model in the same folder",
        one(weights=STREAMED, candidate={"generation": "b", "model": "qwen3-32b"}),
        f"{CANDIDATE}.weights.s3.prefix",
        "llama/v1",
        "a folder of its own",
        "set prefix",
    ),
    Case(
        "folder without a bucket",
        following(weights={"s3": {"prefix": "a/b"}}),
        f"{CANDIDATE}.weights.s3",
        "a/b",
        "without it",
        "remove it",
    ),
]
