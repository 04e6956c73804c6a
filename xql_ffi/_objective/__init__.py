"""A loss as a function of the rows that it reads, for optimizers."""
