"""The models: what is served, by which roles, on what."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from ..pins import DEFAULT_ENGINE
from .base import AtLeastOne, Count, Fraction, Name, Positive, Spec, Text, form, number
from .capacity import CapacitySpec
from .gateway import GatewaySpec
from .measured import CalibrationSpec, RateSpec
from .weights import WeightsSpec, Word

KvCacheDtype = Literal["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla"]
LabelValue = Annotated[Text, form(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", "a label value: letters, digits, -, _ and ."), Field(max_length=63)]
Place = Annotated[Text, form(r"^[A-Za-z0-9/.][^\s]*$", "a repository, path or URI without spaces")]
RoleName = Literal["prefill", "decode", "server"]


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
    tensor_parallel: Annotated[AtLeastOne, Field(le=64)] = Field(1, description="GPUs that share each layer. Default: 1.")
    pipeline_parallel: Annotated[AtLeastOne, Field(le=64)] = Field(
        1, description="Stages of layers. Above 1 only in server mode: vLLM refuses it on a NIXL decoder. Default: 1."
    )
    expert_parallel: bool = Field(False, description="Give each GPU whole experts instead of a slice of each (MoE). Default: false.")
    capacity: CapacitySpec = Field(default={}, validate_default=True, description="Where the nodes come from. Default: on demand.")
    gpu_memory_utilization: Fraction | None = Field(
        None, description="Share of GPU memory that vLLM may use on this role. Default: the model's gpuMemoryUtilization."
    )
    max_num_batched_tokens: Count | None = Field(None, description="Tokens in one engine step. Default: vLLM's.")
    max_num_seqs: Count | None = Field(None, description="Requests in one engine step. Default: vLLM's.")
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
    node_selector: dict[Text, LabelValue] = Field(
        {}, description="Labels of the nodes to use; only where no NodePools are made (existingCluster.autoMode: false). Default: none."
    )
    tolerations: list[TolerationSpec] = Field([], description="Taints of those nodes that the pods accept. Default: none.")


class SpeculativeSpec(Spec):
    """Speculative decoding; the same on both roles, because the KV layout depends on it."""

    method: Text = Field(..., description="vLLM's method, for example mtp.")
    num_speculative_tokens: Annotated[AtLeastOne, Field(le=32)] = Field(..., description="Tokens guessed ahead.")


class WorkloadSpec(Spec):
    """What the traffic looks like; used by capacity planning, never by a manifest."""

    input_tokens: Count = Field(..., description="Mean prompt length in tokens.")
    output_tokens: Count = Field(..., description="Mean answer length in tokens.")
    requests_per_second: Positive = Field(..., description="Mean arrival rate.")
    prefix_hit: Annotated[float, BeforeValidator(number), Field(ge=0, lt=1, allow_inf_nan=False)] = Field(
        0, description="Share of prompt tokens that the prefix cache holds already. Default: 0, since nobody can know it before."
    )


class ModelSpec(Spec):
    """One served model. What both roles must share stands here once; a role holds only what may differ."""

    name: Name = Field(..., description="Name in this environment; prefix of its objects and default of namespace and servedModelName.")
    model: Text = Field(..., description="Catalogue id (see `disagg catalog models`), or the path of a config.json or of the folder that holds it.")
    repository: Place | None = Field(
        None,
        description="What vLLM loads, the same text on both roles. Required when model is a path. Default: the catalogue's repository.",
    )
    served_model_name: Word | None = Field(None, description="Model name in the OpenAI API. Default: name.")
    namespace: Name | None = Field(None, description="Kubernetes namespace; one a model, as its router needs one of its own. Default: name.")
    engine: Text = Field(DEFAULT_ENGINE, description=f"Catalogue id of the vLLM image. Default: {DEFAULT_ENGINE}.")
    image_digest: Annotated[Text, form(r"^sha256:[0-9a-f]{64}$", "sha256: and 64 hexadecimal digits")] | None = Field(
        None, description="Digest that pins the engine's image. Default: the tag, and the plan says that it is unverified."
    )
    max_model_len: Count | None = Field(None, description="Longest prompt plus answer in tokens. Default: the model's context length.")
    gpu_memory_utilization: Fraction = Field(0.9, description="Share of GPU memory that vLLM may use. Default: 0.9.")
    dtype: Literal["auto", "bfloat16", "float16"] = Field("auto", description="Dtype of activations. Default: auto, the checkpoint's.")
    kv_cache_dtype: KvCacheDtype = Field("auto", description="Dtype of the KV cache. Default: auto, which is bf16 on Hopper.")
    block_size: Literal[16, 32, 64, 128] | None = Field(
        None, description="Tokens in a KV block. Default: 128 for grouped-query attention with prefill and decode, else the engine's own."
    )
    speculative: SpeculativeSpec | None = Field(None, description="Speculative decoding. Default: off.")
    prefill: RoleSpec | None = Field(None, description="Role that reads prompts and produces KV. Needs decode. Default: absent.")
    decode: RoleSpec | None = Field(None, description="Role that receives KV and writes answers. Needs prefill. Default: absent.")
    server: RoleSpec | None = Field(None, description="Aggregated mode: one role does both, instead of prefill and decode. Default: absent.")
    weights: WeightsSpec = Field(default={}, validate_default=True, description="Where the weights come from. Default: Hugging Face without a token.")
    gateway: GatewaySpec = Field(
        default={}, validate_default=True, description="Router and load balancer. Default: an internal endpoint over HTTP, inside the VPC."
    )
    workload: WorkloadSpec | None = Field(None, description="Expected traffic. Default: unknown.")
    drain_seconds: Annotated[AtLeastOne, Field(le=3600)] = Field(
        60, description="Seconds that requests in flight may take after SIGTERM (--shutdown-timeout). Default: 60."
    )
    wait_for_ready_seconds: Annotated[AtLeastOne, Field(le=86400)] | None = Field(
        None,
        description="Seconds that `pulumi up` waits for the LeaderWorkerSets to be available; the next `up` resumes after a time-out. "
        "Default: it does not wait, since loading outlasts most deployments' patience.",
    )
    extra_args: list[Text] = Field([], description="More vLLM flags, each --flag=value; flags that the project sets are refused. Default: none.")
    extra_env: dict[Annotated[str, form(r"^[A-Za-z_][A-Za-z0-9_]*$", "the name of an environment variable")], Text] = Field(
        {},
        description="More environment variables, never secrets; variables that the project sets or that break EFA are refused. Default: none.",
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
