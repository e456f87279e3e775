"""Requests to clients, their replies and the bytes that carry them."""
