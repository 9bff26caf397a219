"""What pods may do with weights in S3: read or fill their own folder, and nothing else, whatever a stack file names."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from disagg_serving.errors import Level, SpecError
from disagg_serving.resources import iam
from factories import aggregated, check, environment
from hypothesis import given
from hypothesis import strategies as st
from iam_documents import BUCKET, BUCKETS, CASES, KEY, REVISION, SHARED, allowing, applies, documents, in_s3, permits, rights

WRITING = ("s3:PutObject", "s3:AbortMultipartUpload")
ENDING = (
    "s3:DeleteObject", "s3:DeleteObjectVersion", "s3:DeleteBucket", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy", "s3:PutObjectAcl",
    "s3:PutBucketAcl", "s3:PutLifecycleConfiguration", "s3:PutReplicationConfiguration", "s3:BypassGovernanceRetention", "s3:PutObjectTagging",
)  # fmt: skip
KEYS = ("kms:Decrypt", "kms:GenerateDataKey")
KEY_OWNERS = ("kms:Encrypt", "kms:CreateGrant", "kms:PutKeyPolicy", "kms:ScheduleKeyDeletion", "kms:DescribeKey")


class Weights(NamedTuple):
    """One model's weights: the recorded program, the name of the reader's role, and where the files are."""

    case: str
    name: str
    bucket: str
    prefix: str
    partition: str = "aws"

    def __str__(self) -> str:
        return f"{self.case}: {self.name}"

    @property
    def whole(self) -> str:
        """ARN of the bucket."""
        return f"arn:{self.partition}:s3:::{self.bucket}"

    def file(self, prefix: str | None = None) -> str:
        """ARN of a file in the model's folder, or in another one of the bucket."""
        return f"{self.whole}/{self.prefix if prefix is None else prefix}/model-00001-of-00002.safetensors"


WEIGHTS = [
    Weights("glm5", "glm5-glm-5", "example-123456789012-weights", f"zai-org/GLM-5-FP8/{REVISION}"),
    Weights("key", "test-m", BUCKET, f"openai/gpt-oss-120b/{REVISION}"),
    Weights("GovCloud", "test-m", BUCKET, f"openai/gpt-oss-120b/{REVISION}", "aws-us-gov"),
    Weights("cluster by name", "test-m", BUCKET, f"openai/gpt-oss-120b/{REVISION}"),
    *(Weights("one bucket", f"test-m{i}", BUCKET, prefix) for i, prefix in enumerate(SHARED)),
]


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_readers_only_read(weights: Weights) -> None:
    """What engines may do: read and list the model's folder. They can neither change nor delete what other pods load."""
    reader, inside = rights(weights.case, weights.name), f"{weights.prefix}/"
    assert permits(reader, "s3:GetObject", weights.file())
    assert permits(reader, "s3:ListBucket", weights.whole, prefix=inside)
    for action in (*WRITING, *ENDING):
        assert not any(permits(reader, action, resource, prefix=inside) for resource in (weights.file(), weights.whole)), action
    assert {a for s in reader["Statement"] for a in s["Action"]} <= {"s3:GetObject", "s3:ListBucket", "kms:Decrypt"}


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_writers_fill_and_never_delete(weights: Weights) -> None:
    """What the copying Job may do besides: upload in parts. It cannot delete a file, its rights or the bucket."""
    writer, inside = rights(weights.case, f"{weights.name}-mirror"), f"{weights.prefix}/"
    assert all(permits(writer, action, weights.file()) for action in ("s3:GetObject", *WRITING, "s3:ListMultipartUploadParts"))
    assert permits(writer, "s3:ListBucket", weights.whole, prefix=inside)
    for action in ENDING:
        assert not any(permits(writer, action, resource, prefix=inside) for resource in (weights.file(), weights.whole)), action


def strangers(prefix: str) -> list[str]:
    """Folders that are not below a prefix: others' of the same bucket, its parents, its siblings and what begins alike."""
    parents = ["/".join(prefix.split("/")[:n]) for n in range(1, prefix.count("/") + 1)]
    return [*(p for p in SHARED if p != prefix), *parents, f"{prefix}-2", f"{prefix}2", f"x/{prefix}", prefix[:-1], "private"]


def leaks(document: dict[str, Any], weights: Weights) -> list[str]:
    """What a document allows outside the model's folder."""
    away, others = weights._replace(bucket=f"{weights.bucket}-2"), strangers(weights.prefix)
    files = [*(weights.file(o) for o in others), f"{weights.whole}/secret.txt", away.file()]
    found = [f"{action} {file}" for file in files for action in ("s3:GetObject", *WRITING, *ENDING) if permits(document, action, file)]
    lists: list[tuple[str, dict[str, str]]] = [(weights.whole, {"prefix": f"{o}/"}) for o in others]
    lists += [(weights.whole, {}), (weights.whole, {"prefix": ""}), (away.whole, {"prefix": f"{weights.prefix}/"})]
    return found + [f"list {bucket} {context}" for bucket, context in lists if permits(document, "s3:ListBucket", bucket, **context)]


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
@pytest.mark.parametrize("suffix", ["", "-mirror"])
def test_no_role_reaches_another_folder(weights: Weights, suffix: str) -> None:
    """Neither reader nor writer of a model reads, writes or lists the folder of another, the bucket as a whole, or another bucket."""
    assert leaks(rights(weights.case, weights.name + suffix), weights) == []


@pytest.mark.parametrize(
    "wider",
    [
        ('"arn:aws:s3:::example-weights/models/a/*"', '"arn:aws:s3:::example-weights/*"'),
        ('"arn:aws:s3:::example-weights/models/a/*"', '"arn:aws:s3:::example-weights/models/*"'),
        ('"arn:aws:s3:::example-weights/models/a/*"', '"arn:aws:s3:::example-weights/models/a*"'),
        ('"arn:aws:s3:::example-weights/models/a/*"', '"arn:aws:s3:::*/models/a/*"'),
        ('"arn:aws:s3:::example-weights"', '"arn:aws:s3:::*"'),
        ('"models/a/*"', '"models/a*"'),
        ('["models/a", "models/a/*"]', '"*"'),
    ],
)
def test_a_wider_policy_would_be_noticed(wider: tuple[str, str]) -> None:
    """The test above is worth something: each loosening of a pattern lets something through that it forbids."""
    text = iam.weights_policy("aws", BUCKET, "models/a", None, writes=True)
    assert wider[0] in text
    weights = Weights("", "", BUCKET, "models/a")
    assert leaks(json.loads(text), weights) == []
    assert leaks(json.loads(text.replace(*wider)), weights)


# few words, so that folders are often equal, inside each other, or begin alike
BUCKET_NAMES = st.sampled_from(["weights", "weights-2", "w"])
PATHS = st.lists(st.sampled_from(["a", "a-2", "aa", "a.a"]), min_size=1, max_size=3).map("/".join)
PREFIXES = st.one_of(PATHS, st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9._/-]{0,20}[A-Za-z0-9])?\Z"))


@given(bucket=BUCKET_NAMES, prefix=PREFIXES, other_bucket=BUCKET_NAMES, other=PREFIXES, writes=st.booleans())
def test_a_role_reads_its_folder_and_no_other(bucket: str, prefix: str, other_bucket: str, other: str, writes: bool) -> None:  # noqa: FBT001
    """For any two places: the rights to one reach the other only where that lies inside it."""
    document = json.loads(iam.weights_policy("aws", bucket, prefix, None, writes=writes))
    mine, theirs = Weights("", "", bucket, prefix), Weights("", "", other_bucket, other)
    assert permits(document, "s3:GetObject", mine.file())
    assert permits(document, "s3:PutObject", mine.file()) is writes
    inside = bucket == other_bucket and f"{other}/".startswith(f"{prefix}/")
    assert permits(document, "s3:GetObject", theirs.file()) is inside
    assert permits(document, "s3:ListBucket", theirs.whole, prefix=f"{other}/") is inside


def test_keys_are_used_and_not_managed() -> None:
    """With a KMS key the reader decrypts and the writer also encrypts, with that key only; without one no role touches KMS."""
    reader, writer = rights("key", "test-m"), rights("key", "test-m-mirror")
    assert [permits(reader, action, KEY) for action in KEYS] == [True, False]
    assert [permits(writer, action, KEY) for action in KEYS] == [True, True]
    for document in (reader, writer):
        assert not any(permits(document, action, KEY) for action in KEY_OWNERS)
        assert not any(permits(document, action, f"{KEY[:-1]}c") for action in KEYS)
    unencrypted = [s for case in CASES if case != "key" for _, s in allowing(case)]
    assert not [s for s in unencrypted if any(a.startswith("kms:") for a in s["Action"])]


def test_buckets_refuse_plain_http() -> None:
    """A bucket that is made denies every action to everybody without TLS; its policy gives nobody anything."""
    for weights in (w for w in WEIGHTS if w.case in {"glm5", "key", "GovCloud"}):
        (statement,) = (s for d in documents(weights.case) if d.type == BUCKETS for s in d.body["Statement"])
        assert (statement["Effect"], statement["Principal"]) == ("Deny", "*")
        for action in ("s3:GetObject", *WRITING, *ENDING, "s3:ListBucket"):
            for resource in (weights.whole, weights.file("x")):
                assert applies(statement, action, resource, {"aws:SecureTransport": "false"})
                assert not applies(statement, action, resource, {"aws:SecureTransport": "true"})


# ---- what a stack file can do to a policy ---------------------------------------------------------------------------------------------------


def accepted(data: dict[str, Any]) -> bool:
    """Whether an environment passes the checks."""
    try:
        check(data).require_layout()
    except SpecError:
        return False
    return True


def refused(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Rule and place of each error of an environment."""
    return [(f.id, f.path) for f in check(data).findings if f.level is Level.ERROR]


def test_a_prefix_is_no_pattern() -> None:
    """Characters with a meaning in IAM's patterns are refused where a folder or bucket is named."""
    assert accepted(environment(in_s3("m", "models/a")))
    assert not any(accepted(environment(in_s3("m", prefix))) for prefix in ("models/*", "m?dels", "models/${aws:username}", "/models", "models/"))
    assert not any(accepted(environment(in_s3("m", bucket=bucket))) for bucket in ("*", "example-*", "example-weight?"))


@pytest.mark.parametrize("overrides", [{"repository": "org/*"}, {"weights": {"revision": "v*"}}, {"weights": {"revision": "v${aws:username}"}}])
def test_a_repository_or_revision_is_no_pattern(overrides: dict[str, Any]) -> None:
    """Without weights.s3.prefix repository and revision name the folder; a pattern among them would open the folders of others."""
    weights = {"s3": {"bucket": BUCKET}, "revision": REVISION, **overrides.pop("weights", {})}
    assert not accepted(environment(aggregated(**{"model": "gpt-oss-120b", **overrides, "weights": weights})))


ANY_KEY = KEY[: KEY.index("/") + 1]
NO_KEY = (
    *(f"{ANY_KEY}{name}" for name in ("*", "1234abcd-*", "1234abcd-12ab-34cd-56ef-1234567890a?", "${aws:username}", "", "a/b", "a b", "a_b", "a\n")),
    KEY.replace("key/", "alias/"),
    KEY.replace("us-east-1", "*"),
    KEY.replace("123456789012", "*"),
    KEY.replace("arn:aws", "arn:*"),
    "*",
)


@pytest.mark.parametrize("arn", NO_KEY)
def test_a_key_is_one_key(arn: str) -> None:
    """A pattern in the key's place would let pods decrypt with every key of the account; an alias means nothing to IAM."""
    assert refused(environment(in_s3("m", kmsKeyArn=arn))) == [("schema", "models[0].weights.s3.kmsKeyArn")]


def test_keys_of_one_and_of_several_regions_are_taken() -> None:
    """The ids of keys that KMS gives are letters, digits and dashes."""
    for arn in (KEY, f"{ANY_KEY}mrk-1234abcd12ab34cd56ef1234567890ab"):
        assert accepted(environment(in_s3("m", kmsKeyArn=arn)))


@pytest.mark.parametrize(
    ("prefixes", "passes"),
    [
        (("models", "models/inner"), False),
        (("models/inner", "models"), False),
        (("a/b", "a/b/c/d"), False),
        (("models/a", "models/a-2"), True),
        (("models/a", "other/models/a"), True),
        (("models/a", "models/a"), True),
    ],
)
def test_no_folder_is_inside_anothers(prefixes: tuple[str, str], passes: bool) -> None:  # noqa: FBT001 (a table's column)
    """A model whose folder holds another's would read it, and its copying Job could overwrite it; models of the same files share one."""
    assert accepted(environment(*(in_s3(f"m{i}", prefix) for i, prefix in enumerate(prefixes)))) is passes


def test_models_of_different_files_share_no_folder() -> None:
    """The copying Jobs of two revisions would write over each other's files."""
    other = in_s3("two", "models/a")
    other["weights"] = {**other["weights"], "revision": f"f{REVISION[1:]}"}
    assert not accepted(environment(in_s3("one", "models/a"), other))
