"""MLflow: the store, what is recorded in it, models out of it."""
