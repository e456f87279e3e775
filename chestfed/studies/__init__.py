"""What a study is: settings, experiments, training, scoring, tuning."""
