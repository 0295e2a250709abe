"""Places that hold packs. `hotset.tier.node` is the one beside the GPU: files in a directory of this machine."""
