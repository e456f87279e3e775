"""Tests of what the server sends for a loss: the pool of scores, the Ratio Loss."""
