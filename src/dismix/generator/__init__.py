"""The generator: an autoencoder with an ordinal and a non-ordinal codebook."""
