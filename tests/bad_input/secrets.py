"""Passwords, keys and tokens where a stack file holds none; what is said about them never repeats them."""

from __future__ import annotations

from typing import Any

from factories import environment

from .case import Case, one, stack

WITHOUT = "without user and key"
LEAK = "Xq7Zleaked4Z9w"
"""A part of every secret below."""
URLS = {
    "user and password": f"https://user:{LEAK}@charts.example/keda",
    "token as user": f"https://{LEAK}@charts.example/keda",
    "password with a slash": f"https://user:a/{LEAK}@charts.example/keda",
    "token as parameter": f"https://charts.example/keda?token={LEAK}",
    "signed address": f"https://charts.example/keda.tgz?x=1&X-Amz-Signature={LEAK}",
    "password of a registry": f"oci://user:{LEAK}@registry.example/charts/keda",
}


def of_field(path: str, value: str) -> dict[str, Any]:
    """An environment with this value at `block.field`."""
    block, field = path.split(".")
    more = {"dcgmExporter": "chart"} if block == "observability" else {}
    return environment(**{block: {field: value, **more}})


FIELDS = ("autoscaling.chart", "lws.chart", "router.chart", "observability.dcgmChart", "autoscaling.prometheusAddress")
SECRET_CASES = [
    *(Case(f"{field}: {name}", of_field(field, url), field, "", WITHOUT, "revoke it") for field in FIELDS for name, url in URLS.items()),
    Case("mirror with a password", environment(imageSources={"docker.io": f"user:{LEAK}@mirror.example"}), "imageSources.docker.io", "", WITHOUT),
    Case(
        "prefix with a password", environment(imageSources={f"user:{LEAK}@hub.example": "mirror.example"}), "imageSources", "", WITHOUT, "revoke it"
    ),
    Case("mirror with a token", environment(imageSources={"docker.io": f"mirror.example?token={LEAK}"}), "imageSources.docker.io", "", WITHOUT),
    Case("reason with a token", environment(accept={"group-capacity": f"see the ticket, ghp_{LEAK}"}), "accept.group-capacity", "", WITHOUT),
    Case("reason with a password", environment(accept={"group-capacity": f"for now password={LEAK}"}), "accept.group-capacity", "", WITHOUT),
    Case("repository with a password", one(repository=f"https://user:{LEAK}@hub.example/a/b"), "models[0].repository", "", WITHOUT, "revoke it"),
    Case("folder with a password", environment(catalogDirs=[f"https://user:{LEAK}@hub.example/a/b"]), "catalogDirs[0]", "", WITHOUT, "revoke it"),
    Case("key with a token", environment(**{f"hf_{LEAK}": 1}), None, "", WITHOUT, "revoke it", "has a key with"),
    Case("address in a variable", one(extraEnv={"ADDRESS": f"https://user:{LEAK}@x.example"}), "models[0].extraEnv.ADDRESS", "", "weights.tokenKey"),
    Case("address in a flag", one(extraArgs=[f"--otlp=https://user:{LEAK}@x.example"]), "models[0].extraArgs[0]", "--otlp", "weights.tokenKey"),
    Case("header as a flag", one(extraArgs=[f"Authorization: Bearer {LEAK}"]), "models[0].extraArgs[0]", "", "--flag=value"),
    Case(
        "API key itself", one(gateway={"apiKeySecret": f"sk-{LEAK}"}), "models[0].gateway.apiKeySecret", "", "the name of a secret key", "revoke it"
    ),
    Case(
        "API key that is no name", one(gateway={"apiKeySecret": f"{LEAK}=/+"}), "models[0].gateway.apiKeySecret", "", "such as hfToken", "revoke it"
    ),
    Case("API key that is a number", one(gateway={"apiKeySecret": 4242424242}), "models[0].gateway.apiKeySecret", "", "a text", "revoke it"),
    Case("token that is no name", one(weights={"tokenKey": f"hf {LEAK}"}), "models[0].weights.tokenKey", "", "such as hfToken", "revoke it"),
    *(
        Case(f"{key} in plain text", stack(environment(), **{key: LEAK}), key, "", "an encrypted value", f"pulumi config set --secret {key}")
        for key in ("aws:accessKey", "aws:secretKey", "aws:token")
    ),
]
