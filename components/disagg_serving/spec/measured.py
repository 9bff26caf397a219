"""What was measured on a running engine; with it, planning calculates instead of estimating."""

from typing import Annotated

from pydantic import Field

from .base import Count, Positive, Spec, Text


class CalibrationSpec(Spec):
    """Memory of a start of this very engine, from its log (`disagg fit --log FILE` reads one)."""

    weights_gib: Positive = Field(..., alias="weightsGiB", description="GiB a GPU after `Model loading took`; of the fullest rank.")
    kv_cache_gib: Positive = Field(..., alias="kvCacheGiB", description="GiB a GPU after `Available KV cache memory`; of the emptiest rank.")
    kv_cache_tokens: Count | None = Field(None, description="Tokens after `GPU KV cache size`. Default: calculated from kvCacheGiB.")
    gpu_memory_utilization: Annotated[Positive, Field(le=1)] | None = Field(
        None, description="Share of GPU memory at which the log was taken; another one of the role moves the KV cache. Default: the role's."
    )


class MeasuredOnSpec(Spec):
    """The form of engine that a rate was measured on. What is not said is the role's own."""

    instance_type: Text | None = Field(None, description="Catalogue id of the nodes. Default: the role's.")
    tensor_parallel: Count | None = Field(None, description="GPUs that shared each layer. Default: the role's.")
    pipeline_parallel: Count | None = Field(None, description="Stages of layers. Default: the role's.")
    data_parallel: Count | None = Field(None, description="Data-parallel ranks of one engine. Default: the role's.")
    expert_parallel: bool | None = Field(None, description="Whether each GPU held whole experts. Default: as in the role.")
    engine: Text | None = Field(None, description="Catalogue id of the engine. Default: the model's.")


class RateSpec(Spec):
    """A measured rate: prompt tokens a second of a prefill GPU, or answer tokens a second of a decode GPU at the wanted pace."""

    input_tokens: Count = Field(..., description="Mean prompt length of the run.")
    tokens_per_second_per_gpu: Annotated[Positive, Field(ge=1)] = Field(
        ..., alias="tokensPerSecondPerGPU", description="Tokens a second and GPU, saturated."
    )
    measured_on: MeasuredOnSpec | None = Field(
        None,
        description="The form of engine that was measured; on another form than the role's the rate is a range, half to twice as much. Default: the "
        "role's own.",
    )
