"""Small tools without a domain word in them: files, locks, maps, sizes. Nothing here knows what a dataset is."""
