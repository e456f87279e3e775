"""Deployments: places other than this process where the clients of a study compute."""
