"""Evaluations and metrics of many runs as pandas tables: final scores, and a figure of the learning curves.

    python examples/read_runs_with_pandas.py results/runs --out curves.png

Every folder below that has an evals.csv is a run; both tables have its path in the column `run`. It needs pandas and
matplotlib: pip install pandas 'dr-q[plot]'. `dr_q.report.read_results` also reads CSV files and labels runs by preset.
"""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure


def tables(folder, name):
    """The rows of every file of that name below the folder, with the run that they are of."""
    files = sorted(Path(folder).rglob(name))
    return pd.concat(
        [pd.read_csv(file).assign(run=file.parent.relative_to(folder).as_posix()) for file in files], ignore_index=True
    )


def main(folder, out):
    evals = tables(folder, "evals.csv")
    last = evals.loc[evals.groupby(["run", "seed"])["agent_steps"].idxmax()]
    final = last.groupby("run").agg(
        agent_steps=("agent_steps", "max"),
        seeds=("seed", "size"),
        mean=("return_mean", "mean"),
        std=("return_mean", "std"),
    )
    print(final.round(1).to_string())

    logged = tables(folder, "metrics.csv").groupby(["run", "seed"])[["critic_loss", "encoder_loss", "q_mean"]].last()
    print(logged.groupby("run").mean().round(3).to_string())  # the mean over seeds

    curves = evals.groupby(["run", "agent_steps"])["return_mean"].mean()
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for name, curve in curves.groupby("run"):
        axes.plot(curve.index.get_level_values("agent_steps"), curve, label=name)
    axes.set(xlabel="agent steps", ylabel="mean return over seeds")
    figure.legend(fontsize="x-small", loc="outside right upper")
    figure.savefig(out)
    return final


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("curves.png"))
    given = parser.parse_args()
    main(given.folder, given.out)
