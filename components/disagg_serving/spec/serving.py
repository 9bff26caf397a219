"""The models: what is served, by which roles, on what."""

from typing import Annotated, Literal

from pydantic import Field

from ..phrases import say
from ..pins import DEFAULT_ENGINE
from .autoscaling import RoleAutoscalingSpec
from .base import AtLeastOne, Before, Count, Fraction, Name, Positive, Spec, Text, form, number
from .capacity import CapacitySpec
from .connector import ConnectorSpec, RoleConnectorSpec
from .engine_flags import EngineFlag
from .gateway import GatewaySpec
from .measured import CalibrationSpec, RateSpec
from .weights import Prefix, WeightsSpec, Word

All2AllBackend = Literal[
    "allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency", "deepep_v2", "nixl_ep", "moonep", "flashinfer_nvlink_one_sided",
    "flashinfer_nvlink_two_sided", "pplx", "naive",
]  # fmt: skip
KvCacheDtype = Word
LabelValue = Annotated[Text, form(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", "a label value: letters, digits, -, _ and ."), Field(max_length=63)]
Place = Annotated[Text, form(r"^[A-Za-z0-9/.][^\s]*$", "a repository, path or URI without spaces")]
RoleName = Literal["prefill", "decode", "server"]
ImageDigest = Annotated[Text, form(r"^sha256:[0-9a-f]{64}$", "sha256: and 64 hexadecimal digits")]
Dtype = Literal["auto", "bfloat16", "float16"]
BlockSize = Annotated[AtLeastOne, Field(le=4096)]
Variables = dict[Annotated[str, form(r"^[A-Za-z_][A-Za-z0-9_]*$", "the name of an environment variable")], Text]
Percentile = Literal[50, 90, 95]
Generation = Annotated[Text, form(r"^[a-z][a-z0-9]*$", "a letter, then letters and digits, all small"), Field(max_length=8)]


class TolerationSpec(Spec):
    """A Kubernetes toleration, for nodes that this project does not make."""

    key: Text = Field(..., description="Taint key.")
    operator: Literal["Exists", "Equal"] = Field("Exists", description="Exists takes any value. Default: Exists.")
    value: Text | None = Field(None, description="Taint value, with Equal. Default: none.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(None, description="Taint effect. Default: all.")


class RoleSpec(Spec):
    """One side of a model: its engines' parallelism, number and nodes."""

    instance_type: Text = Field(..., description="A catalogue id such as p5.48xlarge; exact, since the family p5 also holds p5.4xlarge with one GPU.")
    replicas: Annotated[AtLeastOne, Field(le=1000)] = Field(1, description="Engines (LeaderWorkerSet groups). Default: 1.")
    autoscaling: RoleAutoscalingSpec | None = Field(
        None, description="Let KEDA choose the number of engines by load, instead of replicas. Default: off."
    )
    tensor_parallel: Annotated[AtLeastOne, Field(le=64), EngineFlag("--tensor-parallel-size")] = Field(
        1, description="GPUs that share each layer. Default: 1."
    )
    pipeline_parallel: Annotated[AtLeastOne, Field(le=64), EngineFlag("--pipeline-parallel-size", unless=1)] = Field(
        1, description="Stages of layers. Above 1 in server mode, and on prefill with connector.mode push. Default: 1."
    )
    data_parallel: Annotated[AtLeastOne, Field(le=64), EngineFlag("--data-parallel-size", unless=1)] = Field(
        1,
        description="Copies of attention in one engine, each with tensorParallel x pipelineParallel GPUs and a KV cache of its own, that share the "
        "experts (MoE). One engine of tensorParallel 8 and dataParallel 2 takes 16 GPUs. Default: 1.",
    )
    expert_parallel: Annotated[bool, EngineFlag("--enable-expert-parallel")] = Field(
        False, description="Give each GPU whole experts instead of a slice of each (MoE). Default: false."
    )
    all2all_backend: Annotated[All2AllBackend | None, EngineFlag("--all2all-backend")] = Field(
        None,
        alias="all2allBackend",
        description="How GPUs exchange tokens for whole experts (--all2all-backend), with dataParallel and expertParallel. Default: "
        "allgather_reducescatter, which works on every network.",
    )
    capacity: CapacitySpec = Field(default={}, validate_default=True, description="Where the nodes come from. Default: on demand.")
    gpu_memory_utilization: Annotated[Fraction | None, EngineFlag("--gpu-memory-utilization")] = Field(
        None, description="Share of GPU memory that vLLM may use on this role. Default: the model's gpuMemoryUtilization."
    )
    max_num_batched_tokens: Annotated[Count | None, EngineFlag("--max-num-batched-tokens")] = Field(
        None, description="Tokens in one engine step. Default: vLLM's."
    )
    max_num_seqs: Annotated[Count | None, EngineFlag("--max-num-seqs")] = Field(None, description="Requests in one engine step. Default: vLLM's.")
    cpu: Annotated[Positive, Field(ge=0.1)] | None = Field(
        None,
        description="vCPU requested by the engine container. Default: the pod's share of the node's allocatable vCPU, less 4.5 % for DaemonSets.",
    )
    memory_gib: Count | None = Field(
        None,
        alias="memoryGiB",
        description="Memory requested by the engine container in GiB, /dev/shm included. Default: the share, like cpu.",
    )
    shm_gib: Count | None = Field(
        None, alias="shmGiB", description="Size of /dev/shm in GiB; it counts as memory. Default: 20 up to 4 GPUs, 64 above."
    )
    ephemeral_storage_gib: Count | None = Field(
        None,
        alias="ephemeralStorageGiB",
        description="Local disk for weights and logs in GiB; a pod that outgrows it is evicted. Default: 1.1 x checkpoint + 20.",
    )
    calibration: CalibrationSpec | None = Field(
        None, description="Memory figures of a real start of this role, after which the memory checks are exact. Default: estimates with error bars."
    )
    measured_rates: list[RateSpec] = Field(
        [],
        description="Measured rates at one or more prompt lengths; the balance of prefill and decode is calculated from them. Default: none, and "
        "only bounds are shown.",
    )
    extra_args: list[Text] = Field(
        [],
        description="More vLLM flags of this role, each --flag=value. They follow the model's extraArgs; a flag that stands in both is the role's "
        "alone. What NIXL compares has to be equal on both roles. Default: none.",
    )
    extra_env: Variables = Field(
        {},
        description="More environment variables of this role, never secrets. They join the model's extraEnv; a variable that stands in both has "
        "the role's value. Default: none.",
    )
    connector: RoleConnectorSpec = Field(
        default={}, validate_default=True, description="Settings of the KV connector that this role has for itself. Default: the model's connector."
    )
    node_selector: dict[Text, LabelValue] = Field(
        {}, description="Labels of the nodes to use; only where no NodePools are made (existingCluster.autoMode: false). Default: none."
    )
    tolerations: list[TolerationSpec] = Field([], description="Taints of those nodes that the pods accept. Default: none.")

    @property
    def least_replicas(self) -> int:
        """Engines that always run."""
        return self.autoscaling.min_replica_count if self.autoscaling else self.replicas

    @property
    def most_replicas(self) -> int:
        """Engines that capacity, addresses and names have to suffice for."""
        return self.autoscaling.max_replica_count if self.autoscaling else self.replicas


class SpeculativeSpec(Spec):
    """Speculative decoding; the same on both roles, because the KV layout depends on it."""

    method: Text = Field(..., description="vLLM's method: mtp drafts with the model's own layers, ngram with its prompt, eagle3 with a draft model.")
    num_speculative_tokens: Annotated[AtLeastOne, Field(le=32)] = Field(..., description="Tokens guessed ahead.")
    model: Place | None = Field(
        None,
        description="The draft model, for eagle, eagle3, draft_model and dflash: a catalogue id or a Hugging Face repository. With weights.s3 its "
        "files are in the same bucket, below its repository and revision; weights.mirror copies them, too. Default: none.",
    )
    revision: Word | None = Field(None, description="Commit of the draft model's repository. Default: the head of main.")
    checkpoint_gb: Positive | None = Field(
        None,
        alias="checkpointGB",
        description="Size of the draft model's files in decimal GB, which memory, disk and start-up count. Default: the catalogue's.",
    )


class WorkloadSpec(Spec):
    """What the traffic looks like; used by capacity planning, never by a manifest."""

    input_tokens: Count = Field(..., description="Mean prompt length in tokens.")
    output_tokens: Count = Field(..., description="Mean answer length in tokens.")
    requests_per_second: Positive = Field(..., description="Mean arrival rate.")
    prefix_hit: Annotated[float, Before(number), Field(ge=0, lt=1, allow_inf_nan=False)] = Field(
        0, description="Share of prompt tokens that the prefix cache holds already. Default: 0, since nobody can know it before."
    )
    ttft_ms: Positive | None = Field(
        None, description="Limit of the time to the first token in milliseconds, that `percentile` of the requests stay below. Default: none."
    )
    tpot_ms: Positive | None = Field(
        None,
        description="Limit of a request's mean time per answer token in milliseconds, that `percentile` of the requests stay below; it also says how "
        "many requests are in decode at once. Default: none, and a range by memory bandwidth.",
    )
    percentile: Percentile = Field(90, description="Of the requests, so many percent keep the limits: 50, 90 or 95. Default: 90.")


class CandidateS3Spec(Spec):
    """Where in the model's bucket the candidate's weights are."""

    prefix: Prefix = Field(..., description="Folder of the candidate's weights. Required where the model names its folder and another one is meant.")


class CandidateWeightsSpec(Spec):
    """What may differ about a candidate's weights; bucket, token and mirror are the model's."""

    revision: Word | None = Field(None, description="Commit of the repository. Default: the model's, unless the candidate has another repository.")
    s3: CandidateS3Spec | None = Field(None, description="Its folder in the bucket. Default: the model's.")


class CandidateSpec(Spec):
    """The next revision of a model: what differs from the model, and whether requests go to it.

    What is not given is the model's, but for `imageDigest` beside another engine, for repository and revision of another model, and for
    what was measured on the model's roles. A role that is given replaces the model's.
    """

    generation: Generation = Field(..., description="Short name of the new pair, part of its objects' names: b makes llama-70b-b-prefill.")
    activate: bool = Field(
        False,
        description="Send requests to the candidate, as soon as it is available, and remove the pair that served before. Default: false, both run.",
    )
    engine: Text | None = Field(None, description="Catalogue id of the vLLM image. Default: the model's.")
    image_digest: ImageDigest | None = Field(None, description="Digest that pins the engine's image. Default: the model's, if the engine is.")
    model: Text | None = Field(None, description="Catalogue id or path of a config.json. Default: the model's.")
    repository: Place | None = Field(None, description="What vLLM loads. Default: the model's, if `model` is; else the catalogue's.")
    max_model_len: Count | None = Field(None, description="Longest prompt plus answer in tokens. Default: the model's.")
    gpu_memory_utilization: Fraction | None = Field(None, description="Share of GPU memory that vLLM may use. Default: the model's.")
    dtype: Dtype | None = Field(None, description="Dtype of activations. Default: the model's.")
    kv_cache_dtype: KvCacheDtype | None = Field(None, description="Dtype of the KV cache. Default: the model's.")
    block_size: BlockSize | None = Field(None, description="Tokens in a KV block. Default: the model's.")
    connector: ConnectorSpec | None = Field(None, description="How KV moves and what is kept in host memory, all of it. Default: the model's.")
    speculative: SpeculativeSpec | None = Field(None, description="Speculative decoding; null turns it off. Default: the model's.")
    prefill: RoleSpec | None = Field(None, description="The whole role. Default: the model's.")
    decode: RoleSpec | None = Field(None, description="The whole role. Default: the model's.")
    server: RoleSpec | None = Field(None, description="The whole role, also in place of prefill and decode. Default: the model's.")
    weights: CandidateWeightsSpec = Field(default={}, validate_default=True, description="Its weights. Default: the model's.")
    extra_args: list[Text] | None = Field(None, description="More vLLM flags, all of them. Default: the model's.")
    extra_env: Variables | None = Field(None, description="More environment variables, all of them. Default: the model's.")


class ModelSpec(Spec):
    """One served model. What both roles must share stands here once; a role holds only what may differ."""

    name: Name = Field(..., description=say("Name in this environment; prefix of its objects and default of namespace and {servedModelName}."))
    model: Text = Field(..., description="Catalogue id (see `disagg catalog models`), or the path of a config.json or of the folder that holds it.")
    repository: Place | None = Field(
        None,
        description="What vLLM loads, the same text on both roles. Required when model is a path. Default: the catalogue's repository.",
    )
    served_model_name: Annotated[Word | None, EngineFlag("--served-model-name")] = Field(
        None, description="Model name in the OpenAI API. Default: name."
    )
    namespace: Name | None = Field(None, description="Kubernetes namespace; one a model, as its router needs one of its own. Default: name.")
    engine: Text = Field(DEFAULT_ENGINE, description=f"Catalogue id of the vLLM image. Default: {DEFAULT_ENGINE}.")
    image_digest: ImageDigest | None = Field(
        None, description="Digest that pins the engine's image. Default: the tag, and the plan says that it is unverified."
    )
    max_model_len: Annotated[Count | None, EngineFlag("--max-model-len", alike=False)] = Field(
        None, description="Longest prompt plus answer in tokens. Default: the model's context length."
    )
    gpu_memory_utilization: Annotated[Fraction, EngineFlag("--gpu-memory-utilization", alike=False)] = Field(
        0.9, description="Share of GPU memory that vLLM may use. Default: 0.9."
    )
    dtype: Annotated[Dtype, EngineFlag("--dtype", unless="auto")] = Field(
        "auto", description="Dtype of activations. Default: auto, the checkpoint's."
    )
    kv_cache_dtype: Annotated[KvCacheDtype, EngineFlag("--kv-cache-dtype", unless="auto")] = Field(
        "auto", description="Dtype of the KV cache. Default: auto, which is bf16 on Hopper."
    )
    block_size: Annotated[BlockSize | None, EngineFlag("--block-size")] = Field(
        None, description="Tokens in a KV block. Default: 128 for grouped-query attention with prefill and decode, else the engine's own."
    )
    speculative: Annotated[SpeculativeSpec | None, EngineFlag("--speculative-config")] = Field(
        None, description="Speculative decoding. Default: off."
    )
    image_pull_secrets: list[Name] = Field(
        [],
        description="Secrets of type kubernetes.io/dockerconfigjson in the model's namespace, with which engines, mirror and load runs pull images. "
        "Somebody else makes them. Default: none.",
    )
    connector: ConnectorSpec = Field(
        default={}, validate_default=True, description="How KV moves from prefill to decode, and what is kept in host memory. Default: NIXL, pull."
    )
    prefill: RoleSpec | None = Field(None, description="Role that reads prompts and produces KV. Needs decode. Default: absent.")
    decode: RoleSpec | None = Field(None, description="Role that receives KV and writes answers. Needs prefill. Default: absent.")
    server: RoleSpec | None = Field(None, description="Aggregated mode: one role does both, instead of prefill and decode. Default: absent.")
    weights: WeightsSpec = Field(default={}, validate_default=True, description="Where the weights come from. Default: Hugging Face without a token.")
    gateway: GatewaySpec = Field(
        default={}, validate_default=True, description="Router and load balancer. Default: an internal endpoint over HTTP, inside the VPC."
    )
    workload: WorkloadSpec | None = Field(None, description="Expected traffic. Default: unknown.")
    drain_seconds: Annotated[AtLeastOne, Field(le=3600), EngineFlag("--shutdown-timeout", alike=False)] = Field(
        60, description="Seconds that requests in flight may take after SIGTERM (--shutdown-timeout). Default: 60."
    )
    wait_for_ready_seconds: Annotated[AtLeastOne, Field(le=86400)] | None = Field(
        None,
        description="Seconds that `pulumi up` waits for the LeaderWorkerSets to be available; the next `up` resumes after a time-out. "
        "Default: it does not wait, since loading outlasts most deployments' patience.",
    )
    extra_args: list[Text] = Field(
        [], description="More vLLM flags of all roles, each --flag=value; flags that the project sets are refused. Default: none."
    )
    extra_env: Variables = Field(
        {},
        description="More environment variables of all roles, never secrets; variables that the project sets or that break EFA are refused. "
        "Default: none.",
    )
    generation: Generation | None = Field(
        None,
        description="Generation of the pair that serves, part of its LeaderWorkerSets' names: the candidate's, once it has been activated. "
        "`pulumi up` waits until the sets of a generation are available before Services and router select them. Default: none.",
    )
    candidate: CandidateSpec | None = Field(
        None, description="The next revision, made next to the one that serves; docs/rollout.md walks through it. Default: none."
    )

    @property
    def roles(self) -> dict[RoleName, RoleSpec]:
        """The roles that are given, by name."""
        named: dict[RoleName, RoleSpec | None] = {"prefill": self.prefill, "decode": self.decode, "server": self.server}
        return {name: role for name, role in named.items() if role is not None}

    @property
    def disaggregated(self) -> bool:
        """Whether prefill and decode are split."""
        return self.server is None

    @property
    def kubernetes_namespace(self) -> str:
        """The namespace of its objects."""
        return self.namespace or self.name
