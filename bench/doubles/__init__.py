"""Provider doubles: they keep what they are given, as AWS would, and know nothing about it."""
