"""Sessions of the stock wheel of DataFusion 55."""
