"""Reading: the `Dataset` that users hold, over the node tier and a filler."""
