"""The version, in a module of its own, so that nothing inside the package imports the public face."""

__version__ = "0.3.0"
