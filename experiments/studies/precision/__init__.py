"""Does bfloat16 change what a model computes, or what it learns?"""
