"""What the paper claims, and the long trainings that it will be judged by."""
