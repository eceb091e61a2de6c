"""What do the codes look like in two dimensions, and how far can the picture be trusted?"""
