"""Do our models learn like the official ones?"""
