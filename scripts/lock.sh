#!/usr/bin/env bash
# Pins every package, direct or not, for Python 3.11; review the difference like any other change.
set -euo pipefail
cd "$(dirname "$0")/.."
lock() { uv pip compile --quiet --no-header --no-annotate --no-emit-index-url --python-version 3.11 --upgrade "$@"; }
runtime=$(lock pyproject.toml --extra aws --extra cluster --extra policy)
dev=$(lock requirements-dev.in -c <(echo "$runtime"))
printf '# Locked by `make lock` from pyproject.toml with its extras; Pulumi installs from this file.\n-e .\n%s\n' "$runtime" > requirements.txt
printf '# Locked by `make lock` from requirements-dev.in; on top of requirements.txt.\n%s\n' "$dev" > requirements-dev.txt
