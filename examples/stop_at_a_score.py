"""A callback that stops a run at a score, and the best policy that the run has kept.

    python examples/stop_at_a_score.py

`stop_at_return=-300` does the same without a callback. A callback may use any rule, and resumes with the run.
"""

import dr_q


class StopAtScore(dr_q.Callback):
    """Stops once the mean return over seeds reaches a score in an evaluation; remembers the best one."""

    def __init__(self, score):
        self.score = score
        self.best, self.best_step = float("-inf"), 0

    def on_evaluation(self, event):
        if event.return_mean > self.best:
            self.best, self.best_step = event.return_mean, event.agent_steps
            event.run.say(f"best so far: {self.best:.1f}")
        if self.best >= self.score:
            return dr_q.Stop(f"return {self.best:.1f} at step {self.best_step}, asked for {self.score}")
        return None

    def state(self):  # goes into every checkpoint
        return {"best": self.best, "best_step": self.best_step}

    def restore(self, state):  # called when the run is resumed
        self.best, self.best_step = state["best"], state["best_step"]


def main(out="runs/pendulum-stopped", score=-300, steps=20_000, **settings):
    settings = {"preset": "quick", "eval_every": 1_000, **settings}
    result = dr_q.train("gym/Pendulum-v1", steps=steps, out=out, callbacks=[StopAtScore(score)], **settings)
    print(result.status, result.stop_reason)

    # The run keeps the best policy of each seed. Its score was chosen for being high, so it is measured again.
    best = dr_q.load(result.folder, which="best")
    print(f"{best}: chosen at {best.returns[best.seed]:.1f}, again {best.fresh_returns[best.seed]:.1f}")
    return result


if __name__ == "__main__":
    main()
