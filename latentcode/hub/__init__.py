"""Runs and codes on the Hugging Face hub: which files, under which address, verified how.

A shared folder is one commit of a repository. Data go there and come back, never code: `files`
lists what may, `manifest` holds the checksum of each file, and what is downloaded lies in the cache
of `huggingface_hub`. What a run or codes are is the business of the rooms above.
"""
