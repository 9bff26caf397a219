"""Where images and charts are read from: an air-gapped environment names mirrors by prefix."""

from __future__ import annotations

from collections.abc import Mapping

DEFAULT_REGISTRY = "docker.io"
OCI = "oci://"


def located(reference: str, sources: Mapping[str, str]) -> str:
    """`reference` (an image, or a chart as oci://...) with the longest matching prefix replaced; without a match as it is.

    An image without a registry is looked up as docker.io/...; a prefix ends at a slash, a colon or an @.
    """
    scheme = OCI if reference.startswith(OCI) else ""
    full = reference.removeprefix(OCI)
    first, slash, _ = full.partition("/")
    if not scheme and not (slash and ("." in first or ":" in first or first == "localhost")):
        full = f"{DEFAULT_REGISTRY}/{full}"
    matching = [prefix for prefix in sources if full == prefix or (full.startswith(prefix) and full[len(prefix)] in "/:@")]
    if not matching:
        return reference
    longest = max(matching, key=len)
    return scheme + sources[longest] + full[len(longest) :]
