"""Made-up results of every task of the paper, near its published means; no run is behind them."""

import math

import numpy as np

from dr_q.paper import paper_tasks, published_score
from dr_q.report import Result

PRESETS = {"dr.q": "DR.Q", "mr.q": "MR.Q", "no-infonce": "MR.Q"}


def synthetic_results(tasks=None, presets=PRESETS, seeds: int = 10, checkpoints: int = 20) -> list[Result]:
    """Curves that rise to about the published mean, with noise of about the published interval."""
    rng = np.random.default_rng(0)
    found = []
    for task in tasks or paper_tasks():
        info = paper_tasks()[task]
        start = info.random_score or 0.0
        steps = np.linspace(0, info.agent_steps, checkpoints + 1).astype(int)
        for preset, algorithm in presets.items():
            score = published_score(task, algorithm)
            assert score is not None
            spread = max((score.high - score.low) / 3.92 * math.sqrt(10), 1e-3)
            pace = rng.uniform(2, 6)
            for seed in range(seeds):
                end = score.mean + rng.normal(0, spread)
                rise = (1 - np.exp(-pace * steps / steps[-1])) / (1 - math.exp(-pace))
                values = start + (end - start) * rise + rng.normal(0, spread / 4, len(steps)) * (rise < 1)
                found += [
                    Result(task, preset, seed, int(step), float(value), {})
                    for step, value in zip(steps, values, strict=True)
                ]
    return found
