#!/usr/bin/env bash
# Pins every package, direct or not, for Python 3.11; review the difference like any other change.
set -euo pipefail
cd "$(dirname "$0")/.."
lock() { uv pip compile --quiet --no-header --no-annotate --no-emit-index-url --python-version 3.11 --upgrade "$@"; }
whole=$(lock pyproject.toml --extra aws --extra cluster --extra policy)
runtime=$(lock pyproject.toml -c <(echo "$whole"))
extras=$(comm -13 <(echo "$runtime" | sort) <(echo "$whole" | sort))
dev=$(lock requirements/dev.in -c <(echo "$whole"))
docs=$(lock requirements/docs.in -c <(echo "$whole") -c <(echo "$dev"))
release=$(lock requirements/release.in -c <(echo "$whole") -c <(echo "$dev"))
printf '# Locked by `make lock` from pyproject.toml; Pulumi installs from this file.\n-e .\n%s\n' "$runtime" > requirements.txt
printf '# Locked by `make lock` from the extras in pyproject.toml; on top of requirements.txt.\n%s\n' "$extras" > requirements/extras.txt
printf '# Locked by `make lock` from requirements/dev.in; on top of requirements.txt.\n%s\n' "$dev" > requirements/dev.txt
printf '# Locked by `make lock` from requirements/docs.in; on top of requirements.txt.\n%s\n' "$docs" > requirements/docs.txt
printf '# Locked by `make lock` from requirements/release.in; on top of requirements/dev.txt.\n%s\n' "$release" > requirements/release.txt
