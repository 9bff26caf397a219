"""Disaggregated LLM serving on EKS Auto Mode as a typed Pulumi library, planned and checked before any GPU is bought."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
