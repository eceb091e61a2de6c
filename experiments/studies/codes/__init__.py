"""What do the codes of trained runs say, and what do they cause?"""
