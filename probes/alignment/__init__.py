"""Do models that differ in their seed, layer or attention kind have the same codes?"""
