"""Environments drawn at random: valid ones mostly, or faulty ones mostly."""

from __future__ import annotations

from typing import Any

from disagg_serving.catalog import Catalog
from factories import environment, existing_cluster
from hypothesis import strategies as st

CATALOG = Catalog()
INSTANCES = sorted(CATALOG.instances)
BIG = [i for i in INSTANCES if CATALOG.instances[i].gpu.count > 1]
MODELS = sorted(CATALOG.models)
WITH_EXPERTS = [m for m in MODELS if CATALOG.models[m].moe is not None]
ENGINES = sorted(CATALOG.engines)
RESERVATIONS = [f"cr-{i:017x}" for i in range(3)]
ZONES = ["us-east-1a", "us-east-1b"]
BAD_ZONES: tuple[Any, ...] = (
    [],
    ["us-east-1a"],
    ["us-east-1a", "us-east-1a"],
    ["us-east-1a", "eu-west-1a"],
    ["us-gov-west-1a", "us-gov-west-1b"],
    ["x"],
    None,
)
SIDES = ("prefill", "decode", "server")


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """At most three of the fields."""
    return st.lists(st.sampled_from(sorted(fields)), max_size=3, unique=True).flatmap(
        lambda keys: st.fixed_dictionaries({k: fields[k] for k in keys})
    )


def merged(*parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings put together, later ones first."""
    return st.tuples(*parts).map(lambda given: {k: v for part in given for k, v in part.items()})


good_names = st.one_of(
    st.sampled_from(["m", "a", "a-0", "a-decode", "a-api", "hf-token", "n", "x-1"]),
    st.text("ab0-", min_size=1, max_size=6).map(lambda t: f"n{t}z"),
    st.integers(30, 50).map(lambda n: "l" * n),
)
BAD_NAMES = ("", "M", "1a", "a_b", "-", "ä", 5, "n" * 70, "lws-system", "kube-system")


class Generator:
    """Strategies whose values are bad once in `odds`; with low odds everything is refused, with high ones most things pass."""

    def __init__(self, odds: int) -> None:
        self._odds = odds

    def mostly(self, good: st.SearchStrategy[Any], *bad: Any) -> st.SearchStrategy[Any]:
        """Good values, seldom a bad one."""
        return st.integers(1, self._odds).flatmap(lambda n: st.sampled_from(bad) if n == self._odds else good)

    def capacity(self) -> st.SearchStrategy[Any]:
        """Where nodes come from, often enough of them."""
        ids = st.lists(st.sampled_from(RESERVATIONS), min_size=1, max_size=3)
        kinds = st.fixed_dictionaries({"type": st.sampled_from(["on-demand", "spot"])}, optional={"nodes": st.integers(8, 30)})
        reserved = st.fixed_dictionaries({"type": st.just("reserved"), "reservationIds": ids, "nodes": st.integers(8, 40)})
        bad = ({"type": "reserved"}, {"type": "free"}, {"reservationIds": ["cb-1"]}, {"nodes": 0}, {"nodes": 1}, {"type": "reserved", "nodes": 1})
        return self.mostly(st.one_of(kinds, reserved), *bad)

    def autoscaling(self) -> st.SearchStrategy[Any]:
        """Bounds and thresholds of a scaled role."""
        good = st.fixed_dictionaries(
            {"maxReplicaCount": st.integers(3, 8)},
            optional={
                "minReplicaCount": st.integers(1, 3),
                "kvCacheUsage": st.floats(0.1, 0.9),
                "waitingRequests": st.floats(0.5, 64),
                "scaleUpPeriodSeconds": st.integers(1, 1800),
                "scaleDownWindowSeconds": st.integers(0, 3600),
            },
        )
        bad: tuple[Any, ...] = (
            {},
            {"maxReplicaCount": 0},
            {"minReplicaCount": 0, "maxReplicaCount": 2},
            {"minReplicaCount": 9, "maxReplicaCount": 2},
        )
        return self.mostly(good, *bad, {"maxReplicaCount": 2, "backlogSeconds": 1}, {"maxReplicaCount": 10**6}, True)

    def role(self, instances: list[str], stages: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
        """A role on one of these types."""
        sized = st.fixed_dictionaries(
            {
                "instanceType": self.mostly(st.sampled_from(instances), *INSTANCES, "p5", "p5.48xlage", 5),
                "tensorParallel": self.mostly(st.sampled_from([1, 2, 4, 8, 8, 16]), 0, 3, 5, 6, 12, 24, 64, 65),
            },
            optional={"pipelineParallel": stages, "replicas": self.mostly(st.integers(1, 12), 0, 40, 1000, 1001, True, "2")},
        )
        overrides = optional(
            capacity=self.capacity(),
            autoscaling=self.autoscaling(),
            expertParallel=self.mostly(st.just(False), True),
            cpu=self.mostly(st.floats(0.5, 60), 0, -1, 1e-9, 500, True, "many", 10**9, 1e308, float("inf")),
            memoryGiB=self.mostly(st.integers(80, 400), 0, 1, 1900, 10**9, 1.5, 10**400),
            shmGiB=self.mostly(st.integers(1, 64), 0, 5000),
            ephemeralStorageGiB=self.mostly(st.integers(1, 3000), 0, 28312, 10**6),
            gpuMemoryUtilization=self.mostly(st.floats(0.5, 0.99), 0, 1, 1.5, "most", float("nan")),
            maxNumSeqs=self.mostly(st.integers(1, 4096), 0),
            maxNumBatchedTokens=self.mostly(st.integers(1, 65536), -1),
        )
        one_number = self.mostly(st.just(True), False)
        return st.tuples(merged(sized, overrides), one_number).map(lambda drawn: without_number(*drawn))

    def sides(self) -> st.SearchStrategy[dict[str, Any]]:
        """Prefill and decode, or server; seldom another mixture."""
        split, whole = self.role(BIG, self.mostly(st.just(1), 2, 4)), self.role(INSTANCES, self.mostly(st.sampled_from([1, 1, 2, 4]), 0, 3, 64, 70))
        both = st.fixed_dictionaries({"prefill": split, "decode": split})
        return self.mostly(both | st.fixed_dictionaries({"server": whole}), {}, {"server": {}}, {"prefill": {"instanceType": "p5.48xlarge"}})

    def ranks(self) -> st.SearchStrategy[dict[str, Any]]:
        """Data-parallel ranks of a role, which share experts."""
        sizes = st.sampled_from([(1, 8), (8, 2), (4, 2), (2, 4), (4, 4), (1, 16), (8, 4), (1, 4)])
        shared = sizes.map(lambda s: {"tensorParallel": s[0], "dataParallel": s[1], "expertParallel": True})
        backends = st.sampled_from([{}, {}, {"all2allBackend": "allgather_reducescatter"}, {"all2allBackend": "deepep_v2"}])
        bad = (
            {"dataParallel": 3},
            {"dataParallel": 0},
            {"dataParallel": 65},
            {"dataParallel": 2},
            {"all2allBackend": "pplx"},
            {"all2allBackend": "x"},
        )
        return self.mostly(merged(shared, backends), *bad)

    def experts(self) -> st.SearchStrategy[dict[str, Any]]:
        """A model whose roles have data-parallel ranks."""
        ranked = merged(self.role(BIG, st.just(1)), self.ranks())
        sides = st.fixed_dictionaries({"prefill": ranked, "decode": ranked}) | st.fixed_dictionaries({"server": ranked})
        return merged(st.fixed_dictionaries({"model": self.mostly(st.sampled_from(WITH_EXPERTS), *MODELS)}), sides)

    def weights(self) -> st.SearchStrategy[Any]:
        """Where weights come from; buckets are shared by several models."""
        s3 = st.fixed_dictionaries(
            {"bucket": st.sampled_from(["acme", "acme.weights"])}, optional={"prefix": st.sampled_from(["a", "a/b", "c.d/e_f"])}
        )
        streamed = st.fixed_dictionaries({"s3": s3, "revision": st.just("0123abcdef")}, optional={"mirror": st.booleans()})
        downloaded = st.fixed_dictionaries({}, optional={"revision": st.just("main"), "cache": st.sampled_from(["pod", "node"])})
        bad: tuple[Any, ...] = (
            {"tokenKey": "1"},
            {"mirror": True},
            {"s3": {}},
            {"s3": {"bucket": "A"}},
            {"s3": {"bucket": "acme", "prefix": "/"}},
            {"revision": "*"},
        )
        return self.mostly(streamed | downloaded, *bad)

    def gateway(self) -> st.SearchStrategy[Any]:
        """A gateway, public or not, with plugins of one's own or not."""
        scorers = st.lists(
            st.fixed_dictionaries({"type": st.sampled_from(["queue-scorer", "active-request-scorer"]), "weight": st.floats(0.1, 9)}), max_size=3
        )
        public = {
            "public": True,
            "sourceRanges": ["203.0.113.0/24"],
            "certificateArn": "arn:aws:acm:us-east-1:123456789012:certificate/a",
            "apiKeySecret": "apiKey",
        }
        open_or_not: st.SearchStrategy[dict[str, Any]] = st.sampled_from([{}, {}, public, {"apiKeySecret": "key"}, {"idleTimeoutSeconds": 60}])
        sized = st.fixed_dictionaries({}, optional={"picker": st.fixed_dictionaries({"cpu": st.floats(0.1, 32), "memoryGiB": st.integers(1, 64)})})
        plugged = st.fixed_dictionaries({"routing": st.fixed_dictionaries({}, optional={"prefill": scorers, "decode": scorers})})
        bad: tuple[Any, ...] = (
            {"public": True},
            {"enabled": False, "public": False},
            {"routing": {"server": [{"type": "x"}]}},
            {"routing": {"disaggregation": "never"}},
            {"idleTimeoutSeconds": 1},
            {"sourceRanges": ["all"]},
        )
        return self.mostly(st.just({"enabled": False}) | merged(open_or_not, sized) | merged(plugged, open_or_not), *bad)

    def candidate(self) -> st.SearchStrategy[Any]:
        """The next revision, activated or not."""
        changes = st.fixed_dictionaries(
            {"generation": st.sampled_from(["b", "v2", "autumn"]), "extraEnv": st.just({"STEP": "2"})},
            optional={"activate": st.booleans(), "extraArgs": st.just(["--seed=2"]), "maxModelLen": st.integers(1, 4096), "speculative": st.none()},
        )
        bad: tuple[Any, ...] = (
            {"generation": "b"},
            {"generation": "decode", "maxModelLen": 1},
            {"generation": "b", "model": "deepseek-v3"},
            {"generation": "b", "engine": "vllm-0.33.0", "weights": {"revision": "fedcba9876"}},
            {"generation": "b", "weights": {"s3": {"prefix": "next"}}},
            {"generation": "b", "server": {"instanceType": "p5.48xlarge", "tensorParallel": 3}},
            {"generation": "b", "extraArgs": ["--port=1"]},
            {"maxModelLen": 1},
        )
        return self.mostly(changes, *bad)

    def model(self) -> st.SearchStrategy[dict[str, Any]]:
        """A model without its name."""
        any_model = st.fixed_dictionaries({"model": self.mostly(st.sampled_from(MODELS), "llama", "./config.json", "../up", 3)})
        return merged(
            st.one_of(merged(any_model, self.sides()), merged(any_model, self.sides()), self.experts()),
            st.sampled_from(
                [{}, {"weights": {"tokenKey": "hfToken"}}, {"weights": {"s3": {"bucket": "acme"}, "mirror": True, "revision": "0123abcdef"}}]
            ),
            optional(
                engine=self.mostly(st.sampled_from(["vllm-0.33.0-efa", "vllm-0.27.1-dlc"]), *ENGINES, "sglang"),
                maxModelLen=self.mostly(st.integers(1, 8192), 0, 10**9),
                drainSeconds=self.mostly(st.integers(1, 3600), 0, 3601),
                kvCacheDtype=self.mostly(st.sampled_from(["auto", "fp8"]), "fp4"),
                blockSize=self.mostly(st.sampled_from([16, 64, 128]), 100),
                weights=self.weights(),
                gateway=self.gateway(),
                extraArgs=self.mostly(
                    st.lists(st.sampled_from(["--seed=1", "--enforce-eager"]), max_size=2, unique=True), ["-tp=2"], ["--port=1"], ["x"]
                ),
                extraEnv=self.mostly(
                    st.dictionaries(st.sampled_from(["A", "FOO", "_B"]), st.text("ab ", min_size=1, max_size=3)),
                    {"NCCL_ALGO": "Ring"},
                    {"HF_HOME": "/"},
                ),
                workload=st.fixed_dictionaries(
                    {"inputTokens": st.integers(1, 5000), "outputTokens": st.integers(1, 500), "requestsPerSecond": st.floats(0.01, 100)}
                ),
                speculative=st.just({"method": "mtp", "numSpeculativeTokens": 2}),
                servedModelName=st.text("aZ/-. ä", min_size=1, max_size=8),
                candidate=self.candidate(),
                waitForReadySeconds=st.sampled_from([None, 60, 86400]),
                imageDigest=self.mostly(st.just("sha256:" + "0" * 64), "sha256:0"),
            ),
        )

    def environment(self) -> st.SearchStrategy[dict[str, Any]]:
        """An environment on a cluster of its own, on an existing one, or on nodes that exist."""
        return st.builds(
            build_environment,
            st.sampled_from(["own", "own", "existing", "existing nodes", "existing nodes by type"]),
            st.lists(self.model(), min_size=1, max_size=3),
            self.mostly(st.lists(good_names, min_size=3, max_size=3, unique=True), ["m", "m", "m"]),
            self.mostly(st.just(None), *BAD_NAMES),
            st.sampled_from([None, None, "shared", "m"]),
            optional(
                name=self.mostly(good_names.filter(lambda n: len(n) <= 40), "", "M", "l" * 41),
                cluster=st.integers(1, 100).map(lambda n: {"name": "c" * n, "endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}}),
                nodePools=st.fixed_dictionaries(
                    {}, optional={"expireAfterHours": st.integers(1, 490), "tags": st.just({"a": "b"}), "placementGroup": st.just("g")}
                ),
                lws=self.mostly(st.sampled_from([{}, {"install": "existing"}, {"namespace": "m"}]), {"version": "1"}),
                networkPolicy=self.mostly(
                    st.fixed_dictionaries(
                        {},
                        optional={
                            "enabled": st.booleans(),
                            "vpcCidrs": st.just(["10.0.0.0/16", "100.65.0.0/16"]),
                            "weightsCidrs": st.just(["198.51.100.0/24"]),
                            "prometheusNamespace": good_names,
                        },
                    ),
                    {"vpcCidrs": ["x"]},
                ),
                imageSources=self.mostly(st.just({"docker.io": "mirror.example.com/hub"}), {"docker.io": "https://x"}),
            ),
            self.mostly(st.permutations(ZONES[:2]), *BAD_ZONES),
        )


def build_environment(  # noqa: PLR0913, PLR0917 (the parts of an environment)
    where: str, served: list[dict[str, Any]], given: list[str], bad: Any, namespace: str | None, extra: dict[str, Any], zones: list[str]
) -> dict[str, Any]:
    """The whole mapping of what was drawn."""
    extra = {"autoscaling": {"prometheusAddress": "http://prometheus.monitoring.svc:9090"}, **extra}
    named = [{"name": name, **one, **({"namespace": namespace} if namespace else {})} for name, one in zip(given, served, strict=False)]
    if bad is not None:
        named[0]["name"] = bad
    if where == "own":
        return environment(*named, network={"zones": zones}, **extra)
    extra = {key: value for key, value in extra.items() if key != "cluster"}
    if where == "existing":
        return {**existing_cluster(*named), **extra}
    return {**existing_cluster(*(on_existing_nodes(one, by_type=where.endswith("type")) for one in named), autoMode=False), **extra}


def without_number(one: dict[str, Any], one_number: bool) -> dict[str, Any]:  # noqa: FBT001
    """The role without replicas where it is scaled, as long as `one_number` says so."""
    return {k: v for k, v in one.items() if k != "replicas"} if one_number and "autoscaling" in one else one


def on_existing_nodes(one: dict[str, Any], *, by_type: bool) -> dict[str, Any]:
    """The model with a selector in each role, by its instance type or its name, and without capacity."""
    sides = {
        name: {
            **{k: v for k, v in one[name].items() if k != "capacity"},
            "nodeSelector": {"pool": f"x{one[name].get('instanceType') if by_type else name}"},
        }
        for name in SIDES
        if name in one
    }
    return {**one, **sides}
