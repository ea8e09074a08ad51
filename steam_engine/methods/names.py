"""The methods by name, for front ends; imports nothing heavy."""

NAMES = ("steam", "rome", "memit", "ft", "told")
