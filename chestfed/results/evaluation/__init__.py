"""Evaluation: metrics, protocols and uncertainty on arrays of scores and labels."""
