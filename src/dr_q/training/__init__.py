"""Training: memory plan, loop, evaluation, signals, and the Python API. `dr_q.train` and others lead here."""
