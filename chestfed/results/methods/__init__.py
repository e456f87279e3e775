"""What methods that are compared were trained with."""
