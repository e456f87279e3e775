"""Engines: who runs which client where, how messages travel and are counted. No mathematics."""
