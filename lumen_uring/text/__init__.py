"""Text models: what a tokenizer.json means, and the file that the C library reads of it."""
