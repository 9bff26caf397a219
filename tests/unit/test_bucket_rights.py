"""What pods may do with weights in S3: read the model's folder or fill the revision's, and nothing else, whatever a stack file names."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from disagg_serving.errors import Level, SpecError
from disagg_serving.resources import iam
from factories import aggregated, check, environment, layout
from hypothesis import given
from hypothesis import strategies as st
from iam_documents import (
    BUCKET,
    BUCKETS,
    CASES,
    KEY,
    OLDER,
    REVISION,
    RIGHTS,
    SHARED,
    allowing,
    applies,
    documents,
    graph_of,
    in_s3,
    permits,
    rights,
)  # fmt: skip

WRITING = ("s3:PutObject", "s3:AbortMultipartUpload")
ENDING = (
    "s3:DeleteObject", "s3:DeleteObjectVersion", "s3:DeleteBucket", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy", "s3:PutObjectAcl",
    "s3:PutBucketAcl", "s3:PutLifecycleConfiguration", "s3:PutReplicationConfiguration", "s3:BypassGovernanceRetention", "s3:PutObjectTagging",
)  # fmt: skip
KEYS = ("kms:Decrypt", "kms:GenerateDataKey")
KEY_OWNERS = ("kms:Encrypt", "kms:CreateGrant", "kms:PutKeyPolicy", "kms:ScheduleKeyDeletion", "kms:DescribeKey")


class Weights(NamedTuple):
    """One model's weights: the recorded program, the beginning of its roles' names, and where the files are."""

    case: str
    name: str
    bucket: str
    base: str
    partition: str = "aws"
    revision: str = REVISION

    def __str__(self) -> str:
        return f"{self.case}: {self.name}"

    @property
    def folder(self) -> str:
        """The folder of the revision that the copying Job fills."""
        return f"{self.base}/{self.revision}"

    @property
    def whole(self) -> str:
        """ARN of the bucket."""
        return f"arn:{self.partition}:s3:::{self.bucket}"

    def file(self, folder: str) -> str:
        """ARN of a file in a folder of the bucket."""
        return f"{self.whole}/{folder}/model-00001-of-00002.safetensors"

    def rights(self, purpose: str) -> dict[str, Any]:
        """The document of the model's reader or writer."""
        return rights(self.case, f"{self.name}-weights-{purpose}")


COPIED = [
    Weights("glm5", "glm5-glm-5", "example-123456789012-weights", "zai-org/GLM-5-FP8"),
    Weights("key", "test-m", BUCKET, "openai/gpt-oss-120b"),
    Weights("GovCloud", "test-m", BUCKET, "openai/gpt-oss-120b", "aws-us-gov"),
    Weights("cluster by name", "test-m", BUCKET, "openai/gpt-oss-120b"),
    *(Weights("one bucket", f"test-m{i}", BUCKET, base) for i, base in enumerate(SHARED)),
    Weights("one base", "test-old", BUCKET, "models/a", revision=OLDER),
    Weights("one base", "test-new", BUCKET, "models/a"),
]
WEIGHTS = [*COPIED, Weights("there already", "test-m", BUCKET, "models/a")]


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_readers_only_read(weights: Weights) -> None:
    """What engines may do: read and list the model's base folder. They can neither change nor delete what other pods load.

    All revisions are below the base, so pods of the last one go on reading while the next is copied.
    """
    reader = weights.rights("read")
    for folder in (weights.base, f"{weights.base}/{REVISION}", f"{weights.base}/{OLDER}"):
        assert permits(reader, "s3:GetObject", weights.file(folder))
        assert permits(reader, "s3:ListBucket", weights.whole, prefix=f"{folder}/")
        for action in (*WRITING, *ENDING):
            assert not any(permits(reader, action, resource, prefix=f"{folder}/") for resource in (weights.file(folder), weights.whole)), action
    assert {a for s in reader["Statement"] for a in s["Action"]} <= {"s3:GetObject", "s3:ListBucket", "kms:Decrypt"}


@pytest.mark.parametrize("weights", COPIED, ids=str)
def test_writers_fill_and_never_delete(weights: Weights) -> None:
    """What the copying Job may do besides, in its own revision's folder: upload in parts. It cannot delete a file, its rights or the bucket."""
    writer, inside, file = weights.rights("write"), f"{weights.folder}/", weights.file(weights.folder)
    assert all(permits(writer, action, file) for action in ("s3:GetObject", *WRITING, "s3:ListMultipartUploadParts"))
    assert permits(writer, "s3:ListBucket", weights.whole, prefix=inside)
    for action in ENDING:
        assert not any(permits(writer, action, resource, prefix=inside) for resource in (file, weights.whole)), action


def strangers(folder: str) -> list[str]:
    """Folders that are not below one: others' of the same bucket, its parents, its siblings, other revisions and what begins alike."""
    parents = ["/".join(folder.split("/")[:n]) for n in range(1, folder.count("/") + 1)]
    revisions = [f"{parents[-1]}/{r}" for r in (REVISION, OLDER)]
    others = [f for f in (*SHARED, *revisions, *parents) if f != folder]
    return [*others, f"{folder}-2", f"{folder}2", f"x/{folder}", folder[:-1], "private"]


def leaks(document: dict[str, Any], weights: Weights, folder: str) -> list[str]:
    """What a document allows outside a folder; to list it without the slash shows folders that begin alike."""
    away, others = weights._replace(bucket=f"{weights.bucket}-2"), strangers(folder)
    files = [*(weights.file(o) for o in others), f"{weights.whole}/{folder}", f"{weights.whole}/secret.txt", away.file(folder)]
    found = [f"{action} {file}" for file in files for action in ("s3:GetObject", *WRITING, *ENDING) if permits(document, action, file)]
    lists: list[tuple[str, dict[str, str]]] = [(weights.whole, {"prefix": p}) for o in others for p in (o, f"{o}/")]
    lists += [(weights.whole, {}), (weights.whole, {"prefix": ""}), (weights.whole, {"prefix": folder}), (away.whole, {"prefix": f"{folder}/"})]
    return found + [f"list {bucket} {context}" for bucket, context in lists if permits(document, "s3:ListBucket", bucket, **context)]


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_no_reader_reaches_another_folder(weights: Weights) -> None:
    """No reader reads, writes or lists the base folder of another model, the bucket as a whole, or another bucket."""
    assert leaks(weights.rights("read"), weights, weights.base) == []


@pytest.mark.parametrize("weights", COPIED, ids=str)
def test_no_writer_reaches_another_folder(weights: Weights) -> None:
    """Nor does a writer, and it keeps to its own revision: no other one of the same base, and nothing in the base itself."""
    assert leaks(weights.rights("write"), weights, weights.folder) == []


def test_only_who_copies_may_write() -> None:
    """Files that somebody else put there have a reader and no writer."""
    assert [d.name for d in documents("there already") if d.type == RIGHTS] == ["test-m-weights-read"]


@pytest.mark.parametrize("weights", COPIED, ids=str)
def test_pods_name_what_they_may_touch(weights: Weights) -> None:
    """Engines stream from the revision's folder, which is below what they may read; the Job fills the folder that it may write."""
    resources = graph_of(weights.case).resources.values()
    model = weights.name.split("-", 1)[1]
    mine = [r.inputs.get("spec", {}) for r in resources if r.inputs.get("metadata", {}).get("namespace") == model]
    (engine,) = [s["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0] for s in mine if "leaderWorkerTemplate" in s]
    (job,) = [s["template"]["spec"]["containers"][0] for s in mine if "backoffLimit" in s]
    assert engine["args"][0] == f"s3://{weights.bucket}/{weights.folder}"
    variables = {e["name"]: e.get("value") for e in job["env"]}
    assert [variables[n] for n in ("BUCKET", "PREFIX", "REVISION")] == [weights.bucket, weights.folder, weights.revision]


@pytest.mark.parametrize(
    ("asked", "base", "folder"),
    [
        ({"mirror": True, "revision": REVISION}, "openai/gpt-oss-120b", f"openai/gpt-oss-120b/{REVISION}"),
        ({"mirror": True, "revision": REVISION, "prefix": "models/a"}, "models/a", f"models/a/{REVISION}"),
        ({}, "openai/gpt-oss-120b", "openai/gpt-oss-120b"),
        ({"revision": REVISION}, "openai/gpt-oss-120b", f"openai/gpt-oss-120b/{REVISION}"),
        ({"prefix": "models/a"}, "models/a", "models/a"),
        ({"revision": REVISION, "prefix": "models/a"}, "models/a", "models/a"),
    ],
)
def test_a_given_prefix_is_a_base_or_the_folder_itself(asked: dict[str, Any], base: str, folder: str) -> None:
    """A mirror makes a folder of each revision below the prefix; who put the files there by hand names their folder."""
    place = {"bucket": BUCKET, **{k: v for k, v in asked.items() if k == "prefix"}}
    weights = {"s3": place, **{k: v for k, v in asked.items() if k != "prefix"}}
    (served,) = layout(environment(aggregated(model="gpt-oss-120b", weights=weights))).served
    assert (served.s3_base, served.s3_prefix, served.weights_uri) == (base, folder, f"s3://{BUCKET}/{folder}")


@pytest.mark.parametrize(
    "wider",
    [
        ('"arn:aws:s3:::example-weights/models/a/*"', '"arn:aws:s3:::example-weights/*"'),
        ('"arn:aws:s3:::example-weights/models/a/*"', '"arn:aws:s3:::example-weights/models/*"'),
        ('"arn:aws:s3:::example-weights/models/a/*"', '"arn:aws:s3:::example-weights/models/a*"'),
        ('"arn:aws:s3:::example-weights/models/a/*"', '"arn:aws:s3:::*/models/a/*"'),
        ('"arn:aws:s3:::example-weights"', '"arn:aws:s3:::*"'),
        ('["models/a/*"]', '["models/a*"]'),
        ('["models/a/*"]', '["models/a", "models/a/*"]'),
        ('["models/a/*"]', '["models/*"]'),
        ('["models/a/*"]', '"*"'),
    ],
)
def test_a_wider_policy_would_be_noticed(wider: tuple[str, str]) -> None:
    """The tests above are worth something: each loosening of a pattern lets something through that they forbid."""
    text = iam.weights_policy("aws", BUCKET, ["models/a"], None, writes=True)
    assert text.count(wider[0]) == 1
    weights = Weights("", "", BUCKET, "models/a")
    assert leaks(json.loads(text), weights, "models/a") == []
    assert leaks(json.loads(text.replace(*wider)), weights, "models/a")


# few words, so that folders are often equal, inside each other, or begin alike
BUCKET_NAMES = st.sampled_from(["weights", "weights-2", "w"])
PATHS = st.lists(st.sampled_from(["a", "a-2", "aa", "a.a"]), min_size=1, max_size=3).map("/".join)
PREFIXES = st.one_of(PATHS, st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9._/-]{0,20}[A-Za-z0-9])?\Z"))


@given(bucket=BUCKET_NAMES, prefix=PREFIXES, other_bucket=BUCKET_NAMES, other=PREFIXES, writes=st.booleans())
def test_a_role_reads_its_folder_and_no_other(bucket: str, prefix: str, other_bucket: str, other: str, writes: bool) -> None:  # noqa: FBT001
    """For any two places: the rights to one reach the other only where that lies inside it."""
    document = json.loads(iam.weights_policy("aws", bucket, [prefix], None, writes=writes))
    mine, theirs = Weights("", "", bucket, prefix), Weights("", "", other_bucket, other)
    assert permits(document, "s3:GetObject", mine.file(prefix))
    assert permits(document, "s3:PutObject", mine.file(prefix)) is writes
    assert permits(document, "s3:ListBucket", mine.whole, prefix=f"{prefix}/")
    assert not permits(document, "s3:ListBucket", mine.whole, prefix=prefix)
    inside = bucket == other_bucket and f"{other}/".startswith(f"{prefix}/")
    assert permits(document, "s3:GetObject", theirs.file(other)) is inside
    assert permits(document, "s3:ListBucket", theirs.whole, prefix=f"{other}/") is inside


def test_keys_are_used_and_not_managed() -> None:
    """With a KMS key the reader decrypts and the writer also encrypts, with that key only; without one no role touches KMS."""
    reader, writer = rights("key", "test-m-weights-read"), rights("key", "test-m-weights-write")
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
    for prefix in ("models/../b", "models//a", "models/./a"):
        assert refused(environment(in_s3("m", prefix))) == [("weights-folder", "models[0].weights.s3.prefix")]
    assert not any(accepted(environment(in_s3("m", bucket=bucket))) for bucket in ("*", "example-*", "example-weight?"))


@pytest.mark.parametrize("overrides", [{"repository": "org/*"}, {"weights": {"revision": "v*"}}, {"weights": {"revision": "v${aws:username}"}}])
def test_a_repository_or_revision_is_no_pattern(overrides: dict[str, Any]) -> None:
    """Without weights.s3.prefix repository and revision name the folder; a pattern among them would open the folders of others."""
    weights = {"s3": {"bucket": BUCKET}, "revision": REVISION, **overrides.pop("weights", {})}
    assert not accepted(environment(aggregated(**{"model": "gpt-oss-120b", **overrides, "weights": weights})))


ANY_KEY = KEY[: KEY.index("/") + 1]
NO_KEY = (
    *(f"{ANY_KEY}{name}" for name in ("*", "1234abcd-*", "1234abcd-12ab-34cd-56ef-1234567890a?", "${aws:username}", "", "a/b", "a b", "a_b")),
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


def test_a_key_has_no_end_of_line() -> None:
    """A pattern that ends with $ would let it pass; characters that nobody sees are refused before a text's form is looked at."""
    assert refused(environment(in_s3("m", kmsKeyArn=f"{ANY_KEY}a\n"))) == [("characters", "models[0].weights.s3.kmsKeyArn")]


def test_keys_of_one_and_of_several_regions_are_taken() -> None:
    """The ids of keys that KMS gives are letters, digits and dashes."""
    for arn in (KEY, f"{ANY_KEY}mrk-1234abcd12ab34cd56ef1234567890ab"):
        assert accepted(environment(in_s3("m", kmsKeyArn=arn)))


@pytest.mark.parametrize("revision", ["main", "v1.0", "abc", REVISION[:6], f"{REVISION}0", REVISION.upper(), "refs/pr/1"])
def test_a_mirror_copies_a_commit(revision: str) -> None:
    """What a branch or tag names changes, and each time another copy would be made in the folder of the same name."""
    assert refused(environment(in_s3("m", "models/a", revision=revision))) == [("weights-source", "models[0].weights.revision")]
    assert accepted(environment(in_s3("m", "models/a", revision=revision, mirror=False)))


@pytest.mark.parametrize("revision", [REVISION[:7], OLDER, "0" * 12])
def test_commits_may_be_short(revision: str) -> None:
    """7 to 40 hexadecimal digits name a commit."""
    assert accepted(environment(in_s3("m", "models/a", revision=revision)))


OTHER = "org/other"
NESTED = [("models", "models/inner"), ("models/inner", "models"), ("a/b", "a/b/c/d"), ("models/a", f"models/a/{REVISION}")]
APART = [("models/a", "models/a-2"), ("models/a", "other/models/a"), ("models/a", "models/b")]


@pytest.mark.parametrize("repository", [None, OTHER], ids=["one repository", "two"])
@pytest.mark.parametrize("mirrors", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize(("prefixes", "passes"), [*((p, False) for p in NESTED), *((p, True) for p in APART)])
def test_no_base_is_inside_anothers(prefixes: tuple[str, str], passes: bool, mirrors: tuple[bool, bool], repository: str | None) -> None:  # noqa: FBT001 (a table's column)
    """A model whose base holds another's would read it; bases that only begin alike are apart."""
    one, two = in_s3("one", prefixes[0], mirror=mirrors[0]), in_s3("two", prefixes[1], mirror=mirrors[1], repository=repository)
    assert refused(environment(one, two)) == ([] if passes else [("weights-folder", "models[1].weights.s3.prefix")])
    assert accepted(environment(one, {**two, "weights": {**two["weights"], "s3": {**two["weights"]["s3"], "bucket": "another"}}}))


def test_a_folder_of_all_is_none_of_one_revision() -> None:
    """Who reads the base itself would load the files of the revision below it as well, be it the same repository."""
    for prefix in ("models/a", None):
        plain, copied = in_s3("plain", prefix, revision=None, mirror=False), in_s3("copied", prefix)
        for two in ((plain, copied), (copied, plain)):
            assert refused(environment(*two)) == [("weights-folder", "models[1].weights.s3.prefix")]


def test_revisions_of_one_repository_share_a_base() -> None:
    """Each revision has a folder below the base, whether the base is given or the repository's name."""
    for prefix in ("models/a", None):
        assert accepted(environment(in_s3("old", prefix, revision=OLDER), in_s3("new", prefix)))
        assert accepted(environment(in_s3("one", prefix), in_s3("two", prefix)))


@pytest.mark.parametrize("revision", [REVISION, OLDER])
@pytest.mark.parametrize("mirror", [True, False])
def test_models_of_different_repositories_share_no_base(revision: str, mirror: bool) -> None:  # noqa: FBT001 (a table's column)
    """Not even with revisions that differ: the readers of one would read the other's, and equal commits one folder."""
    data = environment(in_s3("one", "models/a"), in_s3("two", "models/a", revision=revision, mirror=mirror, repository=OTHER))
    assert refused(data) == [("weights-folder", "models[1].weights.s3.prefix")]
    assert accepted(environment(in_s3("one"), in_s3("two", revision=revision, mirror=mirror, repository=OTHER)))
