"""The paper's figures that run something, by name: what is trained, what the paper says of it, and what we see."""

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dr_q.config import Config, current_names, plain_value
from dr_q.envs import NOISE_DIMS, known_tasks
from dr_q.kit import (
    ConfigError,
    MissingPackageError,
    RunFolderError,
    check_can_make,
    did_you_mean,
    is_installed,
    replace_file,
    spelled,
)
from dr_q.report import Result, build_report, read_results, write_results
from dr_q.report.claims import Claim, Judgement, claims_on, judge, judge_difference, judge_published, sentence
from dr_q.report.numbers import with_interval
from dr_q.report.results import listed_as
from dr_q.report.statistics import sample, sample_difference
from dr_q.report.write import write_curves, write_verdicts
from dr_q.run_folder import find_runs, read_run
from dr_q.settings import Settings
from dr_q.sweep.driver import run_sweep
from dr_q.sweep.estimate import Estimate, estimate
from dr_q.sweep.spec import RESULTS_FILE, SEEDS, SweepOptions, SweepSpec, Variant

_NOISY = f"+noise{NOISE_DIMS}"
_ANALYSED_AT = 200_000
"""Agent steps at which the paper looks into runs (App. E.3, E.4)."""
_FOUR_DOMAINS = ("gym/Ant-v4", "dmc/humanoid-run", "hbench/h1-sit_hard-v0", "hbench/h1hand-pole-v0")
"""The paper draws four tasks from different domains and names none; these are ours."""


_TABLES = ("gym", "dmc-easy", "dmc-hard", "hbench", "hbench-hand", "dmc-visual")
"""Suites in the order of the paper's tables, from Table 6 on."""


class Part(NamedTuple):
    """Tasks of an experiment that have a number of seeds of their own."""

    folder: str
    tasks: tuple[str, ...]
    seeds: int


class Experiment(NamedTuple):
    """One figure of the paper, or a list of runs."""

    name: str
    figure: str
    """Which of the paper."""
    about: str
    tasks: tuple[str, ...]
    """Tasks and suites."""
    presets: tuple[str, ...]
    claims: tuple[Claim, ...] = ()
    ends_in: Literal["curves", "published", "tsne", "priorities", "list"] = "curves"
    steps: int | None = None
    """None: each task's budget."""
    noise: tuple[int, ...] = (0,)
    """Dimensions of noise, one sweep for each."""
    chosen: str = ""
    """Which tasks are our choice, because the paper does not name its own."""
    eval_every: int | None = None
    """None: a run's default."""
    parts: tuple[Part, ...] = ()
    """A sweep for each, one after the other; none: all tasks in one, with the paper's number of seeds."""


def _published(name: str, figure: str, tasks: tuple[str, ...]) -> Experiment:
    return Experiment(name, figure, "DR.Q next to the published scores", tasks, ("dr.q",), ends_in="published")


_WITHOUT_INFONCE = Claim("worse without InfoNCE", "dr.q", "no-infonce")
_SAMPLING = (
    Claim("worse without LAP", "dr.q", "only-forget"),
    Claim("worse without fading", "dr.q", "only-lap"),
)
_STAND = ("dmc/humanoid-stand", "dmc/hopper-stand")

EXPERIMENTS = (
    _published("main", "Fig. 1, Fig. 3", ("paper",)),
    *(
        _published(suite, f"Table {number} and its curves (App. D)", (suite,))
        for number, suite in enumerate(_TABLES, start=6)
    ),
    Experiment(
        "infonce",
        "Fig. 4, top",
        "without the InfoNCE loss",
        _FOUR_DOMAINS,
        ("dr.q", "no-infonce"),
        (_WITHOUT_INFONCE,),
        chosen="all four tasks",
    ),
    Experiment(
        "infonce-extended",
        "App. E.1, InfoNCE",
        "without the InfoNCE loss, more tasks",
        ("hbench/h1-sit_hard-v0", "hbench/h1hand-pole-v0"),
        ("dr.q", "no-infonce"),
        (_WITHOUT_INFONCE,),
    ),
    Experiment(
        "sampling",
        "Fig. 4, bottom",
        "without either part of the sampling",
        _FOUR_DOMAINS,
        ("dr.q", "only-forget", "only-lap"),
        _SAMPLING,
        chosen="all four tasks",
    ),
    Experiment(
        "sampling-extended",
        "App. E.1, sampling",
        "without either part of the sampling, more tasks",
        ("hbench/h1hand-walk-v0", "hbench/h1hand-sit_hard-v0", "dmc/humanoid-run", "dmc/humanoid-walk"),
        ("dr.q", "only-forget", "only-lap"),
        (
            *_SAMPLING,
            Claim("worse without LAP", "dr.q", "only-forget", tasks=("dmc/humanoid-run", "dmc/humanoid-walk")),
        ),
    ),
    Experiment(
        "dynamics",
        "App. E.1, dynamics loss",
        "without the latent dynamics loss",
        ("dmc/acrobot-swingup", "hbench/h1hand-stair-v0", "hbench/h1hand-pole-v0"),
        ("dr.q", "no-dynamics"),
        (
            Claim("worse without the dynamics loss", "dr.q", "no-dynamics"),
            Claim("little changes without it", "dr.q", "no-dynamics", "little", ("dmc/acrobot-swingup",)),
        ),
    ),
    Experiment(
        "mrq-scaled",
        "App. E.2",
        "MR.Q with DR.Q's hyperparameters",
        ("dmc/humanoid-run", "dmc/hopper-hop", "hbench/h1-run-v0", "hbench/h1hand-walk-v0"),
        ("dr.q", "mr.q", "mr.q-scaled"),
        (
            Claim("DR.Q's hyperparameters improve MR.Q", "mr.q-scaled", "mr.q"),
            Claim("it stays behind DR.Q", "dr.q", "mr.q-scaled"),
        ),
        chosen="all four tasks",
    ),
    Experiment(
        "noise",
        "App. E.3, noise",
        f"{NOISE_DIMS} dimensions of noise in the state",
        (*_STAND, "hbench/h1hand-walk-v0"),
        ("dr.q", "mr.q"),
        (
            Claim("MR.Q suffers from noise", "mr.q", f"mr.q{_NOISY}", tasks=_STAND),
            Claim("DR.Q suffers little", "dr.q", f"dr.q{_NOISY}", "little", _STAND),
            Claim("DR.Q stays above MR.Q with noise", f"dr.q{_NOISY}", f"mr.q{_NOISY}"),
        ),
        noise=(0, NOISE_DIMS),
    ),
    Experiment(
        "tsne",
        "App. E.3, t-SNE",
        "z_sa of replay samples in two dimensions",
        ("gym/HalfCheetah-v4", "dmc/humanoid-walk", "hbench/h1-sit_hard-v0", "hbench/h1hand-stand-v0"),
        ("dr.q", "mr.q"),
        ends_in="tsne",
        steps=_ANALYSED_AT,
    ),
    Experiment(
        "priorities",
        "App. E.4",
        "|TD error| x fade weight by age",
        (
            "hbench/h1-run-v0", "gym/HalfCheetah-v4", "gym/Ant-v4", "dmc/humanoid-walk", "dmc/dog-run",
            "hbench/h1-sit_hard-v0", "hbench/h1hand-stand-v0", "hbench/h1hand-walk-v0",
        ),
        ("dr.q", "mr.q"),
        ends_in="priorities",
        steps=_ANALYSED_AT,
        chosen="all tasks but hbench/h1-run-v0",
    ),
    Experiment(
        "breadth",
        "Tables 6 to 11, early",
        "every task of the paper for 50,000 agent steps",
        (*_TABLES,),
        ("dr.q",),
        ends_in="list",
        steps=50_000,
        eval_every=25_000,
        parts=(Part("states", _TABLES[:-1], 5), Part("pixels", _TABLES[-1:], 3)),
    ),
)  # fmt: skip


class Plan(NamedTuple):
    """An experiment as it is to be run: a sweep for each noise, or for each part."""

    experiment: Experiment
    sweeps: list[tuple[str, SweepSpec]]
    """Name of the folder, and the sweep in it."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Spelled out."""
        return tuple(dict.fromkeys(task for _, spec in self.sweeps for task in spec.tasks))

    def folders(self, out: Path) -> list[Path]:
        """Of every run, by task, then preset."""
        jobs = [job for name, spec in self.sweeps for job in spec.jobs(out / name)]
        return [job.folder for job in sorted(jobs, key=lambda job: self.tasks.index(job.task))]

    def budget(self, task: str) -> int:
        """Agent steps that the paper's statement is about."""
        known = known_tasks().get(task)
        return self.experiment.steps or (known.agent_steps if known else 0)


class Finding(NamedTuple):
    """What an experiment ended in."""

    figures: list[Path]
    sentences: list[str]


def find(name: str) -> Experiment:
    """An experiment by its name."""
    for experiment in EXPERIMENTS:
        if experiment.name == name:
            return experiment
    names = [experiment.name for experiment in EXPERIMENTS]
    hint = did_you_mean(name, names) or ";"
    raise ConfigError(f"unknown experiment '{name}'{hint} experiments: {', '.join(names)}")


def plan(
    experiment: Experiment,
    *,
    tasks: tuple[str, ...] = (),
    seeds: int | None = None,
    steps: int | None = None,
    changes: dict[str, Any] | None = None,
    **schedule: Any,
) -> Plan:
    """The paper's, or with other tasks, seeds, steps, evaluations and settings."""
    schedule = {"eval_every": experiment.eval_every, **schedule, "steps": steps or experiment.steps}

    def sweep(tasks: tuple[str, ...], usual_seeds: int, noise: int = 0) -> SweepSpec:
        number = usual_seeds if seeds is None else seeds
        return SweepSpec(tasks, experiment.presets, number, noise_dims=noise, changes=changes or {}, **schedule)

    if not experiment.parts:
        names = [(f"runs-noise{noise}" if noise else "runs", noise) for noise in experiment.noise]
        return Plan(experiment, [(name, sweep(tasks or experiment.tasks, SEEDS, noise)) for name, noise in names])
    asked = sweep(tasks, SEEDS).tasks if tasks else None
    sweeps = []
    for part in experiment.parts:
        whole = sweep(part.tasks, part.seeds)
        mine = whole.tasks if asked is None else tuple(task for task in whole.tasks if task in asked)
        if mine:
            sweeps.append((part.folder, dataclasses.replace(whole, tasks=mine)))
    if not sweeps:
        raise ConfigError(f"experiment {experiment.name} has none of these tasks: {', '.join(tasks)}")
    return Plan(experiment, sweeps)


def estimate_experiment(planned: Plan, out: Path, options: SweepOptions, throughput: float | None = None) -> Estimate:
    """What all its sweeps would take together. Nothing is started."""
    found = [estimate(spec, out / name, options, throughput) for name, spec in planned.sweeps]
    if not found:
        raise ConfigError(f"nothing is left to do of {planned.experiment.name}")
    missing = dict.fromkeys(line for part in found for line in part.missing)
    return found[0]._replace(jobs=[job for part in found for job in part.jobs], missing=list(missing))


def run_experiment(
    planned: Plan,
    out: Path,
    options: SweepOptions,
    say: Callable[[str], None] = lambda line: None,
    *,
    have: Sequence[Path] = (),
    execution: dict[str, Any] | None = None,
) -> Finding:
    """Train what is not trained yet, draw the figure and judge what the paper says. Started again, it continues.

    Args:
        planned: What to train.
        out: The experiment's folder.
        options: Where and how.
        say: Takes lines about the progress.
        have: Folders with runs that were made elsewhere; tasks that are finished there are not trained. For an
            experiment that is a list of runs (breadth).
        execution: Fields of `dr_q.settings.Execution` for every run.
    """
    is_list = planned.experiment.ends_in == "list"
    check_have(planned, have)
    check_can_make(out)
    if not is_list:
        _check_packages()
    start = time.monotonic()
    try:
        for name, spec in without_done(planned, have).sweeps:
            now = _with_time_left(options, (time.monotonic() - start) / 60)
            run_sweep(spec, out / name, now, execution)
    finally:
        if is_list:
            for line in missing(planned, out, have):
                say(line)
    return conclude(planned, out, say, have)


def check_have(planned: Plan, have: Sequence[Path]) -> None:
    """Refuse folders with runs that were made elsewhere, where they are not there or not for the experiment."""
    if have and planned.experiment.ends_in != "list":
        raise ConfigError(f"{spelled('have')} is for lists of runs (breadth), not for {planned.experiment.name}")
    for folder in have:
        if not os.path.isdir(folder):  # noqa: PTH112 - False, too, for what can be no path
            raise RunFolderError(f"{spelled('have')} {folder} is not a folder; give folders that runs are in")


def without_done(planned: Plan, have: Sequence[Path]) -> Plan:
    """Without the tasks that are finished in folders of runs that were made elsewhere."""
    if not have:
        return planned
    sweeps = []
    for name, spec in planned.sweeps:
        done = done_tasks(spec, have)
        left = tuple(task for task in spec.tasks if task not in done)
        sweeps += [(name, dataclasses.replace(spec, tasks=left))] if left else []
    return planned._replace(sweeps=sweeps)


def _with_time_left(options: SweepOptions, minutes: float) -> SweepOptions:
    """`max_minutes` is for the whole experiment."""
    if options.max_minutes is None:
        return options
    return dataclasses.replace(options, max_minutes=max(options.max_minutes - minutes, 0.01))


def done_tasks(spec: SweepSpec, folders: Iterable[Path]) -> dict[str, list[Path]]:
    """The tasks of a sweep of one preset that runs in these folders have finished, wherever they were made, and these.

    A task is done if as many different seeds as the sweep has were evaluated at its last step or later, with the
    sweep's settings.
    """
    wanted = {task: spec.settings(task, Variant(spec.presets[0])) for task in spec.tasks}
    seeds: dict[str, set[int]] = {}
    where: dict[str, list[Path]] = {}
    for folder in dict.fromkeys(run for path in folders if path.exists() for run in _runs_in(path)):
        run = read_run(folder)
        settings = wanted.get(run.info["settings"]["task"])
        if settings is None or not _same_settings(run.info["settings"], settings):
            continue
        reached = {seed for seed, rows in run.evaluations.items() if rows and rows[-1][0] >= settings.steps}
        if reached:
            seeds.setdefault(settings.task_name, set()).update(reached)
            where.setdefault(settings.task_name, []).append(folder)
    return {task: where[task] for task in spec.tasks if len(seeds.get(task, ())) >= spec.seeds}


def _same_settings(record: dict[str, Any], settings: Settings) -> bool:
    """Whether a run learnt with the same settings; how long it is and how often it was evaluated may differ."""
    config = {**dataclasses.asdict(Config()), **current_names(record.get("config", {}), Config)}
    plain = {name: plain_value(value) for name, value in config.items()}
    return record.get("noise_dims", 0) == settings.noise_dims and plain == dataclasses.asdict(settings.config)


def _runs_in(path: Path) -> list[Path]:
    try:
        return find_runs(path)
    except RunFolderError:  # none yet
        return []


def missing(planned: Plan, out: Path, have: Sequence[Path] = ()) -> list[str]:
    """How many tasks of each part are finished, here or elsewhere, and which are not."""
    lines = []
    for name, spec in planned.sweeps:
        done = done_tasks(spec, [*have, out / name])
        left = [task for task in spec.tasks if task not in done]
        said = f"{name}: {len(done)} of {len(spec.tasks)} tasks have {spec.seeds} seeds at their last step"
        lines.append(f"{said}; missing: {', '.join(left)}" if left else said)
    return lines


def conclude(
    planned: Plan, out: Path, say: Callable[[str], None] = lambda line: None, have: Sequence[Path] = ()
) -> Finding:
    """The figure and the sentences of an experiment whose runs are finished."""
    if planned.experiment.ends_in == "list":
        return _listed(planned, out, have)
    results = read_results([out / name / RESULTS_FILE for name, _ in planned.sweeps])
    ends_in = planned.experiment.ends_in
    if ends_in == "published":
        return _compared_with_the_paper(planned, results, out)
    if ends_in == "curves":
        return _presets(planned, results, out)
    return _latent(planned, out, say) if ends_in == "tsne" else _by_age(planned, out, say)


def _listed(planned: Plan, out: Path, have: Sequence[Path]) -> Finding:
    """One file of all results, those that were made elsewhere included."""
    runs = [run for name, spec in planned.sweeps for of in done_tasks(spec, [*have, out / name]).values() for run in of]
    out.mkdir(parents=True, exist_ok=True)
    with replace_file(out / RESULTS_FILE) as part:
        write_results(read_results(runs), part)
    return Finding([out / RESULTS_FILE], [])


def _presets(planned: Plan, results: list[Result], out: Path) -> Finding:
    """Learning curves of all presets, and a verdict for each claim."""
    from dr_q.report.figures import draw_claims

    experiment = planned.experiment
    names = [listed_as(preset, n) for n in experiment.noise for preset in experiment.presets]
    judged = {
        task: [judge(results, claim, task, planned.budget(task)) for claim in claims_on(task, experiment.claims)]
        for task in planned.tasks
    }
    everything = [j for task in planned.tasks for j in judged[task]]
    path = out / "figure.png"
    title = f"{experiment.figure}: {experiment.about}. Mean over seeds, 95% interval"
    draw_claims(results, names, everything, title, path)
    write_curves(results, names, out / "figure.csv")
    write_verdicts(everything, out / "verdicts.csv")
    return Finding([path], [sentence(task, judged[task]) for task in planned.tasks])


def _compared_with_the_paper(planned: Plan, results: list[Result], out: Path) -> Finding:
    """Our means among those of all published algorithms (Fig. 1), and learning curves with the published scores."""
    from dr_q.report.figures import comparison_figure, curve_grids

    report = build_report(results)
    path = out / "figure.png"
    comparison_figure(report, path)
    figures = [path] if path.exists() else []
    figures += [out / f"curves-{suite}.png" for suite in curve_grids(report, out)]
    judged = {task: judge_published(results, task) for task in planned.tasks}
    write_curves(results, planned.experiment.presets, out / "figure.csv")
    write_verdicts(judged.values(), out / "verdicts.csv")
    return Finding(figures, [sentence(task, [judged[task]]) for task in planned.tasks])


def _latent(planned: Plan, out: Path, say: Callable[[str], None]) -> Finding:
    """t-SNE of the first seed of every run; the paper's statement is about how it looks."""
    from dr_q.diagnostics import analyse
    from dr_q.report.analyses import draw_embeddings, write_embeddings

    found = []
    for folder in planned.folders(out):
        say(f"t-SNE of {folder}")
        found.append(analyse.embed(analyse.open_run(folder)))
    path = out / "figure.png"
    draw_embeddings(found, "value: smaller Q, in units of reward", path)
    write_embeddings(found, "value", out / "figure.csv")
    said = (
        "MR.Q in separate clusters, DR.Q continuous: not decidable by a number (the paper gives none; see the figure)"
    )
    return Finding([path], [f"{task}: {said}." for task in planned.tasks])


def _by_age(planned: Plan, out: Path, say: Callable[[str], None]) -> Finding:
    """Priorities of the first seed of every run; over all seeds, what old transitions keep."""
    from dr_q.diagnostics import analyse
    from dr_q.report.analyses import Priorities, draw_priorities, write_priorities

    found: dict[tuple[str, str], list[Priorities]] = {}
    for folder in planned.folders(out):
        run = analyse.open_run(folder)
        for seed in run.seeds:
            say(f"TD errors of {folder}, seed {seed}")
            found.setdefault((run.settings["task"], run.settings["preset"]), []).append(
                analyse.priorities(run, seed=seed)
            )
    path = out / "figure.png"
    draw_priorities([of_run[0] for of_run in found.values()], path)
    write_priorities([p for of_run in found.values() for p in of_run], out / "figure.csv")
    judged = [
        _judge_old(task, found[task, "mr.q"], found[task, "dr.q"], planned.budget(task)) for task in planned.tasks
    ]
    write_verdicts(judged, out / "verdicts.csv")
    return Finding([path], [sentence(j.task, [j]) for j in judged])


def _judge_old(task: str, lap: list[Any], faded: list[Any], budget: int) -> Judgement:
    """Do old transitions keep more of their value with LAP alone? By the logarithm of old to new, over seeds."""
    claim = Claim("with LAP alone old transitions keep larger values", "mr.q", "dr.q")
    kept = [sample(map(_kept, side)) for side in (lap, faded)]
    gap = sample_difference(kept[0], kept[1])
    shares = [f"{math.exp(of.mean):.3g} in {name}" for of, name in zip(kept, (claim.first, claim.second), strict=True)]
    found = (
        f"90% quantile of |TD error| x fade, oldest bucket over newest: {', '.join(shares)}, "
        f"log ratio {with_interval(gap, '+.3g')}"
    )
    return judge_difference(task, claim, gap, lap[0].origin.agent_steps, budget, found)


def _kept(priorities: Any) -> float:
    """log of the 90% quantile in the oldest bucket with TD errors over that in the newest."""
    known = [bucket.faded[2] for bucket in priorities.buckets if not math.isnan(bucket.faded[2])]
    return math.log(max(known[-1], 1e-12) / max(known[0], 1e-12))


def _check_packages() -> None:
    """Before hours of training, not after."""
    for package in ("matplotlib", "sklearn", "scipy"):
        if not is_installed(package):
            raise MissingPackageError(f"an experiment needs {package}: pip install 'dr-q[ray,report]'")
