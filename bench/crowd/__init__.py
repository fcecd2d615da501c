"""The cost of many and of slow connections, and who pays it."""
