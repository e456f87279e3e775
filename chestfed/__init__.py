"""chestfed: a federated AUC-maximization benchmark on chest X-rays of five hospitals."""

__version__ = "0.1.0"
