"""MLflow: the store, and the reporter that records studies in it."""
