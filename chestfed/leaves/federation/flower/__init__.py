"""Carrier of parcels: Flower. The only folder that imports it."""
