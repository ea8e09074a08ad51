"""Where the text of the second moments comes from: the model itself, a file, or a dataset."""
