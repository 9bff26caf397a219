"""The rules, a file a subject and a function a rule."""
