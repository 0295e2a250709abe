"""Settings (the only place that reads the environment) and the builder that puts the parts of a dataset together."""
