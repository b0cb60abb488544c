"""Moves of running operators: who decides them, and how they are begun and watched."""
