"""Codes of language models: does that of the induction pair tell of copying, and cause it?"""
