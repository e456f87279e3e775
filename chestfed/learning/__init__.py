"""Objectives, algorithms, networks and engines; no hospital and no table."""
