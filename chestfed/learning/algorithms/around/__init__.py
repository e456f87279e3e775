"""Rules around a rule: what every averaging algorithm can have besides."""
