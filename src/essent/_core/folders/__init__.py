"""What a model's folder may say: files read with limits, values that are safe, places inside, digests of every file.

A folder is data. Nothing in it can have code run, pickled weights read, files outside read, or anything downloaded;
only the caller can allow that, with `trust_remote_code=True`. No torch is needed here.
"""
