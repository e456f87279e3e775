"""Parts of a pipeline's schema."""
