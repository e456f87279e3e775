"""Open releases of chest X-rays: which there are, and how they come onto this machine."""
