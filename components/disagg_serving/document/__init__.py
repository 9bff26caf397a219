"""The plan as `plan --format json` publishes it, a file a noun: what programs rely on, and what the schema of a plan is made from."""
