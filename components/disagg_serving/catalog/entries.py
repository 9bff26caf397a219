"""The form of the catalogue's YAML files: instance types, models and engine images, one file an entry. For routers see router.py."""

from datetime import date
from datetime import date as Day  # noqa: N812 (a field is named date)
from typing import Annotated, Literal

from pydantic import Field

from ..spec.base import LARGEST, Spec, Text

EntryId = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$", max_length=80)]
Version = Annotated[str, Field(pattern=r"^\d+(\.\d+){1,3}$")]
Number = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=1, le=LARGEST)]
WeightDtype = Literal["bf16", "fp8", "int4", "mxfp4", "nvfp4"]


class Entry(Spec):
    """What every entry has: an id equal to its file name, where its facts come from, and when they were checked."""

    id: EntryId = Field(..., description="Id used in stack files; equal to the file's name.")
    notes: Text | None = Field(None, description="What a reader should know about the numbers.")
    source: list[Text] = Field(..., min_length=1, description="Where the facts come from.")
    checked: date = Field(..., description="The day on which they were checked.")


class Gpu(Spec):
    """The accelerators of a node."""

    name: Text = Field(..., description="Short name as in the label eks.amazonaws.com/instance-gpu-name.")
    product: Text = Field(..., description="Product name.")
    count: Whole = Field(..., description="GPUs a node.")
    memory_mib: Whole = Field(..., alias="memoryMiB", description="Memory of one GPU in MiB as nvidia-smi shows it.")
    memory_gib_torch: Number = Field(..., alias="memoryGiBTorch", description="Memory of one GPU in GiB as PyTorch sees it; the base of every fit.")
    hbm_tbps: Number = Field(..., alias="hbmTBps", description="Memory bandwidth in TB/s.")
    fp8_dense_tflops: Number = Field(..., description="Dense FP8 TFLOP/s.")
    bf16_dense_tflops: Number = Field(..., description="Dense BF16 TFLOP/s.")


class Allocatable(Spec):
    """What pods may use of a node, after the kubelet's and the system's share."""

    cpu_millis: Whole = Field(..., description="Millicores.")
    memory_mib: Whole = Field(..., alias="memoryMiB", description="Memory in MiB.")
    nvme_gib: Whole = Field(..., alias="nvmeGiB", description="Local NVMe in GiB.")
    max_pods: Whole | None = Field(None, description="Pods.")

    @property
    def memory_gib(self) -> int:
        """Whole GiB of memory."""
        return self.memory_mib // 1024


class Efa(Spec):
    """Elastic Fabric Adapters and the network cards that carry them."""

    count: Whole = Field(..., description="EFA devices a node.")
    gbps_each: Whole = Field(..., description="Line rate of one device in Gbit/s.")
    network_cards: Whole = Field(..., description="Network cards a node.")
    first_efa_card: Annotated[int, Field(ge=0)] = Field(..., description="Lowest card with an EFA device: 1 where card 0 carries none.")


class Price(Spec):
    """A dated price of one node."""

    usd_per_hour: Number = Field(..., description="USD an hour.")
    region: Text | None = Field(None, description="Region of the price.")
    as_of: date = Field(..., description="The day of the price.")


class Instance(Entry):
    """An instance type."""

    family: Text = Field(..., description="Family, for example p5.")
    category: Text = Field(..., description="Category, for example p.")
    generation: Text = Field(..., description="Generation, quoted.")
    gpu: Gpu = Field(..., description="Accelerators.")
    vcpu: Whole = Field(..., description="vCPUs, also what the EC2 quota counts.")
    memory_gib: Whole = Field(..., alias="memoryGiB", description="Memory in GiB.")
    nvme_gb: Whole = Field(..., alias="nvmeGB", description="Local NVMe in decimal GB.")
    architecture: Literal["amd64", "arm64"] = Field(..., description="CPU architecture.")
    allocatable: Allocatable = Field(..., description="What pods may use.")
    efa: Efa = Field(..., description="Elastic Fabric Adapters.")
    gpu_direct_rdma: bool = Field(..., description="Whether EFA reads and writes GPU memory directly; the NIXL LIBFABRIC backend needs it.")
    on_demand: Price | None = Field(None, description="On-demand price; absent where none is listed.")
    capacity_block: Price | None = Field(None, description="Capacity Block price an instance and hour; absent where unknown.")


class Mla(Spec):
    """Multi-head latent attention."""

    q_lora_rank: Whole | None = Field(..., description="Rank of the query projection; null where it is in one piece.")
    kv_lora_rank: Whole = Field(..., description="Rank of the latent KV.")
    qk_nope_head_dim: Whole = Field(..., description="Head size without position.")
    qk_rope_head_dim: Annotated[int, Field(ge=0)] = Field(..., description="Head size with position; 0 where no position is rotated in.")
    v_head_dim: Whole = Field(..., description="Head size of values.")


class Indexer(Spec):
    """Sparse-attention indexer (DSA)."""

    heads: Whole = Field(..., description="Indexer heads.")
    head_dim: Whole = Field(..., description="Head size.")
    top_k: Whole = Field(..., description="Tokens that a query attends to.")
    layers: Whole = Field(..., description="Layers that have an indexer of their own.")
    pool: Whole = Field(1, description="Tokens that share one index key.")


class Moe(Spec):
    """Mixture of experts."""

    experts: Whole = Field(..., description="Routed experts a layer.")
    experts_per_token: Whole = Field(..., description="Experts a token visits.")
    shared_experts: Annotated[int, Field(ge=0)] = Field(0, description="Experts that every token visits.")
    intermediate_size: Whole = Field(..., description="Inner size of one expert.")
    hidden_size: Whole | None = Field(None, description="Hidden size that routed experts work on; absent where it is the model's.")
    dense_layers: Annotated[int, Field(ge=0)] = Field(0, description="First layers without experts.")
    every_nth: Whole = Field(1, alias="everyNth", description="Of the other layers each n-th has experts, n being this.")


class SlidingWindow(Spec):
    """Layers that attend to a window only."""

    size: Whole = Field(..., description="Window in tokens.")
    layers: Whole = Field(..., description="How many layers have it.")
    kv_heads: Whole | None = Field(None, description="Their KV heads; absent where they are those of the other layers.")
    head_dim: Whole | None = Field(None, description="Their head size; absent where it is that of the other layers.")


class LinearAttention(Spec):
    """Layers that keep a state of a fixed size instead of KV (gated delta net, Kimi delta attention)."""

    layers: Whole = Field(..., description="How many layers are linear.")
    key_heads: Whole = Field(..., description="Heads of queries and keys.")
    value_heads: Whole = Field(..., description="Heads of values.")
    key_head_dim: Whole = Field(..., description="Size of a key.")
    value_head_dim: Whole = Field(..., description="Size of a value.")
    kernel: Whole = Field(..., description="Tokens that the convolution sees.")
    full_gate: bool = Field(False, description="Whether the gate of the output has a projection of full rank.")


class Vision(Spec):
    """A vision tower: an encoder of patches and the projector behind it, both bf16."""

    layers: Whole = Field(..., description="Layers of the encoder.")
    hidden_size: Whole = Field(..., description="Hidden size of the encoder.")
    intermediate_size: Whole = Field(..., description="Inner size of its MLP.")
    attention_heads: Whole = Field(..., description="Its heads; tensor parallelism cuts layers where it divides them.")
    patch_size: Whole = Field(..., description="Pixels of a patch's side.")
    frames: Whole = Field(1, description="Frames of a patch.")
    gated: bool = Field(False, description="Whether its MLP has a gate beside up and down.")
    positions: Annotated[int, Field(ge=0)] = Field(0, description="Learned positions.")
    patches_per_token: Whole = Field(4, description="Patches that become one token of the language model.")
    item_tokens: Whole = Field(..., description="Tokens of the largest image.")
    projector_millions: Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)] = Field(..., description="Its projector, in millions.")


class Parameters(Spec):
    """Parameter counts in billions."""

    total: Number = Field(..., description="All parameters.")
    active: Number = Field(..., description="Parameters that a token touches.")


class Model(Entry):
    """A model: architecture facts as its config.json has them, and what vLLM needs to know."""

    repository: Text = Field(..., description="What vLLM is told to load.")
    architecture: Text = Field(..., description="Class name in config.json.")
    parameters_b: Parameters = Field(..., alias="parametersB", description="Parameters in billions.")
    layers: Whole = Field(..., description="Hidden layers, without MTP layers.")
    hidden_size: Whole = Field(..., description="Hidden size.")
    attention_heads: Whole = Field(..., description="Query heads.")
    kv_heads: Whole = Field(..., description="KV heads; with MLA the query heads.")
    head_dim: Whole = Field(..., description="Head size; with MLA nope + rope.")
    intermediate_size: Whole = Field(..., description="Inner size of a dense layer.")
    vocab_size: Whole = Field(..., description="Vocabulary.")
    context_length: Whole = Field(..., description="Longest sequence in tokens.")
    mla: Mla | None = Field(None, description="Present with multi-head latent attention.")
    indexer: Indexer | None = Field(None, description="Present with sparse attention by an indexer.")
    moe: Moe | None = Field(None, description="Present with experts.")
    sliding_window: SlidingWindow | None = Field(None, description="Present where some layers attend to a window only.")
    linear_attention: LinearAttention | None = Field(None, description="Present where some layers keep a state instead of KV.")
    residual_streams: Whole = Field(1, description="Residual streams that the layers mix (hyper-connections).")
    kept_residuals: Annotated[int, Field(ge=0)] = Field(0, description="Hidden states of earlier layers that a step keeps for later ones.")
    gated_attention: bool = Field(False, description="Whether the query projection also makes a gate of attention's output.")
    vision: Vision | None = Field(None, description="Present with a vision tower.")
    mtp_layers: Annotated[int, Field(ge=0)] = Field(0, description="Multi-token-prediction layers.")
    tied_embeddings: bool = Field(False, description="Whether input and output embeddings are one.")
    weight_dtype: WeightDtype = Field(..., description="Dtype of most weights.")
    weight_block: Whole | None = Field(None, description="Rows and columns that share a scale, of block-quantised FP8; absent for other weights.")
    checkpoint_gb: Number = Field(..., alias="checkpointGB", description="Size of the checkpoint in decimal GB.")
    min_engine_version: Version | None = Field(None, description="Oldest vLLM that serves it.")
    serve_flags: list[Text] = Field([], description="Parser, tokenizer and template flags, each --flag=value or --flag.")
    gated: bool = Field(False, description="Whether Hugging Face asks for a token.")
    block_size: Whole | None = Field(None, description="KV block size that its attention needs.")


class Verification(Spec):
    """What of a version was asked of the engine itself."""

    date: Day = Field(..., description="The day on which the engine was asked.")
    checks: list[Literal["command-lines", "configuration", "rules", "serving"]] = Field(
        ...,
        min_length=1,
        description="command-lines: its parser takes all that is generated; configuration: so do its checks between flags; rules: what it refuses "
        "is refused here; serving: it answered requests with the generated command lines.",
    )
    source: Text = Field(..., description="How it was asked, and where the results are.")


class Engine(Entry):
    """A vLLM image and what it carries."""

    engine: Literal["vllm"] = Field(..., description="Engine.")
    version: Version = Field(..., description="Engine version.")
    image: Text = Field(..., description="Image with tag; never a floating one.")
    libfabric: bool = Field(..., description="Whether it carries libfabric with EFA, which the NIXL LIBFABRIC backend and NCCL over EFA need.")
    nixl: Version | None = Field(None, description="NIXL version.")
    efa_installer: Version | None = Field(None, description="EFA installer version.")
    runai_streamer: bool = Field(False, description="Whether it streams weights from S3.")
    cuda: Version | None = Field(None, description="CUDA version.")
    tag_verified: bool = Field(..., description="Whether the tag was seen in its registry.")
    stale_peer_fix: bool = Field(..., description="Whether decode survives a prefill restart (https://github.com/vllm-project/vllm/issues/50047).")
    fixes: list[EntryId] = Field([], description="Known bugs (engines/bugs) that the image has a fix for, though its versions do not tell.")
    lmcache: Version | None = Field(None, description="LMCache version in the image; its build file is then a source. Absent where none is known.")
    deep_ep: bool = Field(False, description="Whether it carries DeepEP for EFA (deepep_v2).")
    over_efa: list[Text] = Field([], description="More all-to-all backends that the image runs over EFA, as UCCL-EP does deepep_low_latency.")
    default_gpu_memory_utilization: Annotated[float, Field(gt=0, lt=1)] = Field(..., description="vLLM's own default.")
    verified_on: list[Verification] = Field([], description="What was asked of the engine itself, newest first; empty where nobody has asked it.")
