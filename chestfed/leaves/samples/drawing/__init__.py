"""Drawn chest X-rays: body, signs of disease, acquisition."""
