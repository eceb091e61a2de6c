"""The map: codes as points that a graphics card draws, a million of them if need be."""
