"""Looking into runs and machines: analyses of trained runs, throughput, what works on a machine."""
