"""Trained policies: loading, acting, watching, exporting."""

from dr_q.policies.policy import (
    FrameStackPolicy,
    Policy,
    load,
    policy_of_seed,
    save_best_policies,
    save_policies,
)

__all__ = ["FrameStackPolicy", "Policy", "load", "policy_of_seed", "save_best_policies", "save_policies"]
