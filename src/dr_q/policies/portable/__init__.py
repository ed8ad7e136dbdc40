"""Policies that run without dr-q and JAX: as ONNX, as a file of NumPy and as a file of PyTorch."""

from dr_q.policies.portable.model import PortablePolicy, portable_policy

__all__ = ["PortablePolicy", "portable_policy"]
