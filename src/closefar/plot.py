"""Plots of what was learned; each function draws in one matplotlib Axes and returns it."""
