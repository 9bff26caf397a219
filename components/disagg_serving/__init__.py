"""Disaggregated LLM serving on EKS Auto Mode as a typed Pulumi library, planned and checked before any GPU is bought."""

from __future__ import annotations

__all__ = ["__version__"]

__version__: str
"""Of the installed distribution, which has it from the tag that it was built at; read when it is asked for."""


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 (slow)

    try:
        return version("disagg-serving")
    except PackageNotFoundError:
        return "0+unknown"  # run from a folder that nobody installed
