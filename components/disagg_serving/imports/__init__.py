"""A peer's deployment as a stack file: one module a form, one record between them, one that writes what the record says."""
