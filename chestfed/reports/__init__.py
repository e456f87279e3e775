"""Pages and MLflow, from finished results."""
