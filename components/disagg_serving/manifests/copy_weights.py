"""Copies one revision of a Hugging Face repository to S3, file by file; this text is the command of a Job.

It runs in the engine's image, without this package: the standard library, huggingface_hub and boto3 are all it has. Files that are
there with the right size are left alone, so a Job that is started again goes on where it was. `mirror.json` is written last.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from typing import Any

MARK = "mirror.json"


def main(environment: Mapping[str, str], hub: Any, s3: Any) -> int:
    """Copy what is missing. Returns the number of files that were copied; ends with a message when the copy is not whole."""
    repository, revision = environment["REPOSITORY"], environment["REVISION"]
    bucket, prefix = environment["BUCKET"], environment["PREFIX"]
    info = hub.HfApi().model_info(repository, revision=revision, files_metadata=True)
    wanted = {f.rfilename: f.size for f in info.siblings if is_served(f.rfilename)}
    if not any(name.endswith(".safetensors") for name in wanted):
        raise SystemExit(f"{repository} has no safetensors at its top, and the streamer reads nothing else")
    there = sizes(s3, bucket, prefix)
    if MARK in there:
        held = json.loads(s3.get_object(Bucket=bucket, Key=f"{prefix}/{MARK}")["Body"].read())
        if (held["repository"], held["revision"]) != (repository, info.sha):
            raise SystemExit(f"s3://{bucket}/{prefix} holds {held['repository']} at {held['revision']}; give this revision a folder of its own")
    missing = sorted(name for name, size in wanted.items() if there.get(name) != size)
    for number, name in enumerate(missing, 1):
        print(f"{number} of {len(missing)}: {name}, {wanted[name] / 1e9:.2f} GB", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            path = hub.hf_hub_download(repository, name, revision=revision, local_dir=folder)
            s3.upload_file(path, bucket, f"{prefix}/{name}")
    there = sizes(s3, bucket, prefix)
    incomplete = sorted(name for name, size in wanted.items() if there.get(name) != size)
    if incomplete:
        raise SystemExit(f"not whole after copying: {', '.join(incomplete)}")
    body = json.dumps({"repository": repository, "revision": info.sha, "files": wanted}, indent=1, sort_keys=True)
    s3.put_object(Bucket=bucket, Key=f"{prefix}/{MARK}", Body=body.encode())
    print(f"{len(missing)} files copied, {len(wanted)} in s3://{bucket}/{prefix}", flush=True)
    return len(missing)


def is_served(name: str) -> bool:
    """Whether vLLM needs a file of the repository: those at its top, without other formats of the same weights."""
    return "/" not in name and not name.startswith(".") and not name.endswith((".bin", ".pt", ".pth", ".gguf", ".md"))


def sizes(s3: Any, bucket: str, prefix: str) -> dict[str, int]:
    """Sizes of the objects below the prefix, by name."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
    return {o["Key"][len(prefix) + 1 :]: o["Size"] for page in pages for o in page.get("Contents", [])}


if __name__ == "__main__":
    import boto3
    import huggingface_hub

    main(os.environ, huggingface_hub, boto3.client("s3"))
