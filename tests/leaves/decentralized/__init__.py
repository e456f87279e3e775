"""Tests of algorithms without a server."""
