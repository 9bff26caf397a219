"""What is said about input that no rule can look at yet: findings of reading and of the form, by id."""

from __future__ import annotations

FORM_CHECKS: dict[str, str] = {
    "base-not-compared": "The revision of `--base` can be planned by its own code: without its plan nobody knows what a change replaces or deletes.",
    "catalog": "Names of models, instance types, engines and routers are entries of the catalogue, and entries have its form.",
    "catalog-dir": "Folders of catalogDirs are there, inside the project.",
    "calibration-log": "The log that memory is calibrated with is that of an engine's start.",
    "engine-shape": "An engine has sizes that vLLM can start with.",
    "characters": "Texts hold no character that controls, hides or is taken for another: NUL, zero width, bidi, two scripts in a word.",
    "environment": "A stack file has an environment, in plain text.",
    "import": "What `disagg import` reads is a deployment in one of its forms, in plain values that it can tell apart.",
    "missing": "Keys without a default are given.",
    "model-config": "A model that is no catalogue entry has a config.json inside the project that can be read.",
    "nested-secret": "Secrets stand outside the environment: a secret inside would make all of it secret, while reads return plain text.",
    "plain-secret": "No text has a password, key or token in it: not in the address of a chart, image or server, not in a reason.",
    "program": "A stack's program comes to its end: what it declares until it stops is no plan.",
    "project": "A project's Pulumi.yaml is a mapping with a name.",
    "schema": "Values have the type and the form that their key asks for.",
    "size": "What `disagg size` is asked for can be kept: its options are numbers in their bounds, and a form of engine holds the limits.",
    "stack-file": "A stack file is a mapping, and so is its config.",
    "unknown-architecture": "The memory of a model is calculated where its architecture is a known one.",
    "unknown-key": "Keys are known ones: a misspelt key would silently change nothing.",
    "yaml": "Files are YAML, in plain types, with each key once.",
}
