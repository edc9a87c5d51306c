"""Safe reading of model folders: size limits, allowed values, paths inside the folder, digests of every file.

A folder is data. Nothing in it can run code, load pickled weights, read files outside or download anything; only the
caller can allow that, with `trust_remote_code=True`. This package does not need torch.
"""
