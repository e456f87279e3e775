"""Tests of studies over hospitals."""
