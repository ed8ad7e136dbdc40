"""Simulators of several seeds, in this process or in processes of their own."""
