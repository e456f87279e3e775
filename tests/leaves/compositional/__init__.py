"""Tests of compositional objectives and their algorithms."""
