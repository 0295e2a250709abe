"""hotset: one cache that keeps the dataset of a deep-learning job hot."""
