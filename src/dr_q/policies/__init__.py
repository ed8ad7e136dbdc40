"""Trained policies: loading, acting, watching, exporting."""

from dr_q.policies.policy import FrameStackPolicy, Policy, load, save_policies

__all__ = ["FrameStackPolicy", "Policy", "load", "save_policies"]
