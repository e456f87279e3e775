"""Algorithms without a server."""
