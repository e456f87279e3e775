"""Studies: settings, experiments, training, scoring, tuning."""
