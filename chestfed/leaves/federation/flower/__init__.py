"""What carries parcels: Flower. The only folder that imports it."""
