"""The policy pack: `pulumi preview --policy-pack policy`."""

import sys

try:
    from disagg_serving.resources.policy import serve
except ModuleNotFoundError as problem:
    missing = str(problem.name).split(".", maxsplit=1)[0].replace("_", "-")
    if missing not in {"disagg-serving", "pulumi-policy"}:
        raise
    sys.exit(
        f"the policy pack needs {missing}, which {sys.executable} does not have: `make extras` in a clone, else pip install 'disagg-serving[policy]'"
    )

serve()
