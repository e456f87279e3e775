"""Pages, MLflow and the leaderboard, from finished results."""
