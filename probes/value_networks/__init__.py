"""What operations do codes generate?"""
