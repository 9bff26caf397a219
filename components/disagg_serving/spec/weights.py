"""Where a model's weights come from, and where they are kept on the way."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from .base import Count, Positive, RefusalError, Spec, Text, form
from .cluster import KmsKeyArn
from .engine_flags import EngineFlag

Word = Annotated[Text, form(r"^[A-Za-z0-9][^\s]*$", "one word that starts with a letter or digit")]
SecretKey = Annotated[Text, form(r"^[A-Za-z][A-Za-z0-9_-]*$", "the name of a configuration key such as hfToken")]
BucketName = Annotated[Text, form(r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", "a bucket's name: 3 to 63 small letters, digits, dots and dashes")]
Prefix = Annotated[Text, form(r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$", "a path such as models/llama, without slashes at its ends")]

S3_SCHEME = "s3://"


class S3WeightsSpec(Spec):
    """A place in S3 from which vLLM streams the weights straight into GPU memory (Run:ai streamer)."""

    bucket: BucketName = Field(..., description="Name of the bucket; bucket names are global.")
    create: bool = Field(
        False,
        description="Whether the bucket is made: private, encrypted, only over TLS, and kept when the stack is destroyed. Default: false, it exists.",
    )
    prefix: Prefix | None = Field(
        None,
        description="Folder of the model in the bucket; a mirror makes one below it for each revision. Default: the repository, and below it the "
        "revision.",
    )
    kms_key_arn: KmsKeyArn | None = Field(
        None, description="KMS key of the objects, if the bucket encrypts with one; the pods' role may then use it. Default: S3's own keys."
    )

    @model_validator(mode="before")
    @classmethod
    def _no_address(cls, given: Any) -> Any:
        """Refuse an address, which other tools take, with the mapping that means the same."""
        if not (isinstance(given, str) and given.startswith(S3_SCHEME)):
            return given
        bucket, _, prefix = given.removeprefix(S3_SCHEME).partition("/")
        right = {"bucket": bucket} | ({"prefix": prefix.strip("/")} if prefix.strip("/") else {})
        raise RefusalError("is an address", allowed="a mapping with bucket and prefix", right=right)


class WeightsSpec(Spec):
    """Where the weights come from."""

    revision: Annotated[Word | None, EngineFlag("--revision")] = Field(
        None,
        description="Commit of the repository, so that all pods load the same files. Default: the head of main, which the plan points out.",
    )
    token_key: SecretKey | None = Field(
        None,
        description="Name of the stack's secret key that holds the Hugging Face token, set by `pulumi config set --secret "
        "disagg-serving:hfToken`; here: hfToken. Default: no token.",
    )
    s3: S3WeightsSpec | None = Field(None, description="Stream from S3 instead of downloading from Hugging Face in every pod. Default: Hugging Face.")
    mirror: bool = Field(
        False,
        description="Copy the repository at its revision from Hugging Face to s3 once, by a Job that runs before any GPU node is asked for. "
        "Needs s3 and revision. Default: false, the files are in S3 already.",
    )
    mirror_cpu: Annotated[Positive, Field(ge=0.1)] = Field(2, alias="mirrorCpu", description="vCPU of the mirror's Job. Default: 2.")
    mirror_memory_gib: Count = Field(
        16,
        alias="mirrorMemoryGiB",
        description="Memory of the mirror's Job in GiB; hf_xet buffers up to 8 of it. Default: 16.",
    )
    cache: Literal["pod", "node"] = Field(
        "pod",
        description="Where a download from Hugging Face is kept: pod is an emptyDir that a new pod fills again, node is a folder of the node's "
        "NVMe that pods share and nobody empties (not proven on Auto Mode here). Default: pod.",
    )
