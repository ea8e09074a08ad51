"""Measures how well an editing method works: cases in, numbers out. Knows no store and no assistant."""
